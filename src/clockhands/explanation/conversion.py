"""Write a position configuration for another program, or say why that program cannot be told it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from clockhands.errors import ConfigError, UsageError, describe_unknown
from clockhands.explanation.config_reader import load_families
from clockhands.explanation.rotation import Rotation, temperature_of
from clockhands.explanation.table import Positions

__all__ = ["FORMATS", "convert"]


def convert(positions: Positions, form: str) -> str:
    """Return the configuration as another program wants it: JSON, GGUF keys, or flags.

    ``form``: a key of ``FORMATS``. Raises UsageError for another, ConfigError for what that program cannot be told.
    """
    if form not in FORMATS:
        raise UsageError(describe_unknown("format", form, FORMATS))
    if not positions.rotations():
        _refuse(f"{positions.source} rotates nothing, so there is nothing to write")
    return FORMATS[form](positions)


def _refuse(reason: str) -> NoReturn:
    """Raise ConfigError with the reason why another program cannot be told a configuration."""
    raise ConfigError([reason], "the configuration")


def _get_only_rotation(positions: Positions, program: str) -> Rotation:
    """Return the one rotation of all layers. Raises ConfigError where kinds of layers rotate differently."""
    rotations = positions.rotations()
    if len({(r.base, r.rule, r.factor, r.channels) for r in rotations}) > 1:
        _refuse(f"{program} has one rotation for all layers, and here are {len(rotations)}")
    return rotations[0]


def _make_rope_table(rotation: Rotation) -> dict[str, Any]:
    """Return ``rope_parameters`` of transformers for one rotation."""
    table: dict[str, Any] = {"rope_type": rotation.rule, "rope_theta": rotation.base}
    if rotation.rule == "proportional":
        table["partial_rotary_factor"] = rotation.share
    elif rotation.channels != rotation.head_dim:
        table["partial_rotary_factor"] = rotation.channels / rotation.head_dim
    if rotation.rule == "default":
        if rotation.factors:
            _refuse("transformers has no list of factors without a rule (longrope)")
        return table
    if rotation.rule != "proportional" or rotation.factor != 1.0:
        table["factor"] = rotation.factor
    if rotation.rule in ("yarn", "llama3", "longrope"):
        table["original_max_position_embeddings"] = rotation.original_length
    if rotation.rule == "yarn":
        table |= {"beta_fast": rotation.beta_fast, "beta_slow": rotation.beta_slow, "truncate": rotation.truncate}
    if rotation.rule in ("yarn", "longrope"):
        table["attention_factor"] = rotation.amplitude
    if rotation.rule == "llama3":
        table |= {"low_freq_factor": rotation.low_frequency_factor, "high_freq_factor": rotation.high_frequency_factor}
    if rotation.rule == "longrope":
        table |= {"short_factor": list(rotation.factors), "long_factor": list(rotation.long_factors)}
    return table


def _write_for_transformers5(positions: Positions) -> str:
    """Write a table of transformers 5: one for all layers, or one for each kind."""
    kinds = {layer.kind: layer.rotation for layer in positions.layers if layer.attends}
    own = positions.program == "Clockhands"  # the architecture that reads it is not known, and could not add the rest
    for layer in positions.layers:
        if layer.attends and layer.rotation != kinds[layer.kind] and (own or (layer.rotation and kinds[layer.kind])):
            _refuse(
                f"layers of one kind ({layer.kind}) rotate differently, and rope_parameters have one rotation for a "
                "kind of layer; give --to an architecture, as gemma3_text, for all keys of its configuration"
            )
    # Which layers do not rotate at all is said beside the table, but for architectures whose own table says it.
    own_table = load_families().get(positions.model, {}).get("rope") or {}
    says_none = any(table is None for table in own_table.values())
    if len(positions.rotations()) == 1 and not (says_none and None in kinds.values()):
        table = _make_rope_table(positions.rotations()[0])
    else:
        table = {kind: None if rotation is None else _make_rope_table(rotation) for kind, rotation in kinds.items()}
    return json.dumps({"rope_parameters": table, **_make_length_table(positions)}, indent=2)


def _make_length_table(positions: Positions) -> dict[str, int]:
    """Return the claimed length as transformers writes it; empty where the file has none."""
    return {"max_position_embeddings": positions.claimed_length} if positions.claimed_length else {}


def _write_for_transformers4(positions: Positions) -> str:
    """Write keys of transformers 4, which has one rule, and beside it a plain base for layers with a window."""
    rotations = positions.rotations()
    local = {layer.rotation for layer in positions.layers if "sliding" in layer.kind and layer.rotation}
    whole = {layer.rotation for layer in positions.layers if "sliding" not in layer.kind and layer.rotation}
    if len(rotations) == 2 and len(local) == 1 and len(whole) == 1 and next(iter(local)).rule == "default":
        table = _make_rope_table(next(iter(whole)))
        outside = {"rope_local_base_freq": next(iter(local)).base}
    else:
        table, outside = _make_rope_table(_get_only_rotation(positions, "transformers 4")), {}
    if table["rope_type"] == "proportional":
        _refuse("transformers 4 has no rule 'proportional'")
    written: dict[str, Any] = {"rope_theta": table.pop("rope_theta"), **outside}
    if "partial_rotary_factor" in table:
        written["partial_rotary_factor"] = table.pop("partial_rotary_factor")
    written["rope_scaling"] = table if table["rope_type"] != "default" else None
    return json.dumps({**written, **_make_length_table(positions)}, indent=2)


def _make_vllm_table(positions: Positions, program: str) -> dict[str, Any]:
    """Return ``rope_parameters`` as vLLM reads them, and SGLang, which took its rotations from there."""
    table = _make_rope_table(_get_only_rotation(positions, program))
    if table["rope_type"] == "dynamic":
        _refuse(f"{program} has one base for texts of every length, and here it grows with the text")
    if table["rope_type"] == "yarn":
        # vLLM multiplies what it computes itself by attn_factor, and reads no attention_factor.
        table["attn_factor"] = table.pop("attention_factor") / temperature_of(table["factor"], 1.0)
    return table


def _write_for_vllm(positions: Positions) -> str:
    """Write the flags of vLLM: its overrides of the configuration, and the longest text."""
    table = _make_vllm_table(positions, "--hf-overrides of vLLM")
    length = f" --max-model-len {positions.claimed_length}" if positions.claimed_length else ""
    return f"--hf-overrides '{json.dumps({'rope_parameters': table})}'{length}"


def _write_for_sglang(positions: Positions) -> str:
    """Write the flags of SGLang: its overrides of the configuration, and the longest text."""
    table = _make_vllm_table(positions, "--json-model-override-args of SGLang")
    length = f" --context-length {positions.claimed_length}" if positions.claimed_length else ""
    return f"--json-model-override-args '{json.dumps({'rope_parameters': table})}'{length}"


LLAMA_NAMES = {
    "factor": ("rope.scaling.factor", "--rope-scale"),
    "original_length": ("rope.scaling.original_context_length", "--yarn-orig-ctx"),
    "beta_fast": ("rope.scaling.yarn_beta_fast", "--yarn-beta-fast"),
    "beta_slow": ("rope.scaling.yarn_beta_slow", "--yarn-beta-slow"),
    "attention": ("rope.scaling.attn_factor", "--yarn-attn-factor"),
}
"""The numbers of a rule that llama.cpp is told: as a key of GGUF, after the name of the architecture, and as a flag."""


def _list_llama_numbers(rotation: Rotation) -> dict[str, float]:
    """Return what llama.cpp must be told of a rule, by the names of ``LLAMA_NAMES``; nothing of plain rotation."""
    if rotation.rule == "default":
        return {}
    numbers: dict[str, float] = {"factor": rotation.factor}
    if rotation.rule == "yarn":
        numbers |= {
            "original_length": rotation.original_length or 0,
            "beta_fast": rotation.beta_fast,
            "beta_slow": rotation.beta_slow,
        }
        # llama.cpp computes YaRN's amplitude itself, and multiplies it by this.
        attention = rotation.amplitude / temperature_of(rotation.factor, 1.0)
        numbers |= {"attention": attention} if abs(attention - 1) > 1e-9 else {}
    return numbers


def _write_gguf(positions: Positions) -> str:
    """Write keys of a GGUF file, one a line."""
    rotation = _get_only_rotation(positions, "a GGUF file without a list of layers")
    _refuse_for_llama(rotation)
    name = positions.model or "llama"
    lines = [f"{name}.rope.freq_base = {rotation.base:.10g}", f"{name}.rope.dimension_count = {rotation.channels}"]
    lines += [f"{name}.rope.scaling.type = {rotation.rule}"] if rotation.rule != "default" else []
    lines += [f"{name}.{LLAMA_NAMES[key][0]} = {value:.10g}" for key, value in _list_llama_numbers(rotation).items()]
    return "\n".join(lines)


def _write_llama_flags(positions: Positions) -> str:
    """Write flags of llama.cpp."""
    rotation = _get_only_rotation(positions, "llama.cpp's flags")
    _refuse_for_llama(rotation)
    flags = [f"--rope-freq-base {rotation.base:.10g}", f"--rope-scaling {rotation.rule.replace('default', 'none')}"]
    flags += [f"{LLAMA_NAMES[key][1]} {value:.10g}" for key, value in _list_llama_numbers(rotation).items()]
    return " ".join(flags)


def _refuse_for_llama(rotation: Rotation) -> None:
    """Raise ConfigError for a rule that llama.cpp takes from no key or flag."""
    reasons = {
        "dynamic": "llama.cpp has no dynamic NTK",
        "llama3": "llama.cpp takes Llama 3's rule from a tensor of factors (rope_freqs.weight), not from keys or flags",
        "longrope": "llama.cpp takes the factors of LongRoPE from tensors, not from keys or flags",
        "proportional": "llama.cpp has no rule 'proportional'",
    }
    if rotation.rule in reasons:
        _refuse(reasons[rotation.rule])
    if rotation.rule == "yarn" and not rotation.truncate:
        _refuse("llama.cpp always rounds the bounds of YaRN, and truncate is false here")


FORMATS: dict[str, Callable[[Positions], str]] = {
    "hf5": _write_for_transformers5,
    "hf4": _write_for_transformers4,
    "vllm": _write_for_vllm,
    "sglang": _write_for_sglang,
    "gguf": _write_gguf,
    "llama.cpp": _write_llama_flags,
}
"""What a configuration can be written for, by the name that ``--to`` takes."""
