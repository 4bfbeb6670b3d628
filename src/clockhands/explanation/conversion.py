"""Write a position configuration for another program, or say why that program cannot be told it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from clockhands.errors import CheckpointError, ConfigError, UsageError, describe_unknown
from clockhands.explanation.difference import compare
from clockhands.explanation.gguf_file import find_architecture
from clockhands.explanation.huggingface import PROGRAMS, read_huggingface
from clockhands.explanation.huggingface_rotation import LABELS
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


CARRIED = ("llama_4_scaling_beta", "mscale", "mscale_all_dim", "mrope_section", "mrope_interleaved")
"""Keys of a table of transformers that no rotation has, and that are taken over from the file."""
REPLACED = (
    *("rope_parameters", "rope_scaling", "rope_theta", "rope_local_base_freq", "global_rope_theta", "local_rope_theta"),
    *("rotary_emb_base", "rotary_pct", "partial_rotary_factor", "partial_rotary_factors", "swa_rope_theta"),
    *("compress_rope_theta", "original_max_position_embeddings", "rotary_dim"),
)
"""Keys of a ``config.json`` in place of which a new table is written."""
OLD_NAMES = (
    ("rope_theta", "partial_rotary_factor", "rope_local_base_freq"),
    ("rotary_emb_base", "rotary_pct", "rope_local_base_freq"),
    ("global_rope_theta", "partial_rotary_factor", "local_rope_theta"),
)
"""The keys of transformers 4 for the base, the share that rotates, and the base of windows; architectures differ."""


def _make_rope_table(rotation: Rotation, program: str = "", carried: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return ``rope_parameters`` of transformers for one rotation; ``carried``: the table of the file."""
    table: dict[str, Any] = {"rope_type": rotation.rule, "rope_theta": rotation.base}
    if rotation.rule == "proportional":
        table["partial_rotary_factor"] = rotation.share
    elif rotation.channels != rotation.head_dim:
        table["partial_rotary_factor"] = rotation.channels / rotation.head_dim
    table |= {key: value for key, value in (carried or {}).items() if key in CARRIED}
    if rotation.rule == "default":
        if rotation.factors:
            _refuse("transformers has no list of factors without a rule (longrope)")
        return table
    if rotation.extrapolation != 1.0:
        _refuse(f"only llama.cpp multiplies the ramp of YaRN ({rotation.extrapolation:g})")
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
    if program == "vllm" and rotation.rule == "yarn":
        # vLLM multiplies what it computes itself by attn_factor, and reads no attention_factor; SGLang took it over.
        table["attn_factor"] = table.pop("attention_factor") / temperature_of(rotation.factor, 1.0)
    return table


def _list_tables(positions: Positions, program: str) -> Iterator[dict[str, Any]]:
    """Yield the tables that may say what a configuration means: one for all layers, and one for each kind."""
    tables = positions.tables
    if len(positions.rotations()) == 1:
        flat = tables if "rope_theta" in tables else {}
        yield _make_rope_table(positions.rotations()[0], program, flat)
    kinds: dict[str, Rotation | None] = {}
    for layer in positions.layers:
        if layer.attends:
            label = LABELS.get(positions.model, {}).get(layer.kind, layer.kind)
            kinds[label] = kinds.get(label) or layer.rotation
    inside = {kind: tables[kind] if isinstance(tables.get(kind), Mapping) else {} for kind in kinds}
    yield {
        kind: None if rotation is None else _make_rope_table(rotation, program, inside[kind])
        for kind, rotation in kinds.items()
    }


def _choose(positions: Positions, program: str, candidates: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the first keys that mean the same when the program reads them, in place of the file's own and beside them.

    Raises ConfigError where none does. A configuration that comes from no ``config.json`` has nothing to be read with:
    then the first is taken, if all layers rotate alike.
    """
    if not positions.part:
        of_kind: dict[str, Rotation | None] = {}
        for layer in positions.layers:
            if layer.attends and of_kind.setdefault(layer.kind, layer.rotation) != layer.rotation:
                _refuse(
                    f"layers of one kind ({layer.kind}) rotate differently, and {PROGRAMS[program]} has one rotation "
                    "for a kind of layer; give --to an architecture, as gemma3_text, for all keys of its configuration"
                )
        _get_only_rotation(positions, PROGRAMS[program])
        return next(iter(candidates))
    bare = {key: value for key, value in positions.part.items() if key not in REPLACED}
    expected = dataclasses.replace(positions, strange=())
    for keys in candidates:
        # A rule of the file goes before a new table, so that it has to be taken back.
        beside = {"rope_scaling": None} if positions.part.get("rope_scaling") and "rope_scaling" not in keys else {}
        files = [{**bare, **keys}, {**positions.part, **beside, **keys}]
        try:
            read = [read_huggingface(file, positions.source, program) for file in files]
        except CheckpointError:
            continue
        if all(compare(expected, dataclasses.replace(again, strange=())) is None for again in read):
            return {**keys, **beside}
    _refuse(
        f"{PROGRAMS[program]} has no keys of {positions.model or 'this architecture'} that it would read as these "
        "positions; give --to an architecture, as gemma3_text, for all keys of its configuration"
    )


def _write_for_transformers5(positions: Positions) -> str:
    """Write a table of transformers 5: one for all layers, or one for each kind."""
    length = _make_length_table(positions)
    candidates = ({"rope_parameters": table, **length} for table in _list_tables(positions, ""))
    return json.dumps(_choose(positions, "transformers5", candidates), indent=2)


def _make_length_table(positions: Positions) -> dict[str, int]:
    """Return the claimed length as transformers writes it; empty where the file has none."""
    return {"max_position_embeddings": positions.claimed_length} if positions.claimed_length else {}


def _write_for_transformers4(positions: Positions) -> str:
    """Write keys of transformers 4, which has one rule, and beside it a plain base for layers with a window."""
    rotations = positions.rotations()
    if any(rotation.rule == "proportional" for rotation in rotations):
        _refuse("transformers 4 has no rule 'proportional'")
    local = next((layer.rotation for layer in positions.layers if "sliding" in layer.kind and layer.rotation), None)
    whole = next(
        (layer.rotation for layer in positions.layers if "sliding" not in layer.kind and layer.rotation), local
    )
    assert whole is not None  # something rotates

    def list_candidates() -> Iterator[dict[str, Any]]:
        for base, share, local_base in OLD_NAMES:
            table = _make_rope_table(whole, carried=positions.tables if "rope_theta" in positions.tables else {})
            keys = {base: table.pop("rope_theta")}
            if local is not None and local.base != whole.base:
                keys[local_base] = local.base
            if "partial_rotary_factor" in table:
                keys[share] = table.pop("partial_rotary_factor")
            keys["rope_scaling"] = table if table["rope_type"] != "default" else None
            yield {**keys, **_make_length_table(positions)}

    return json.dumps(_choose(positions, "transformers4", list_candidates()), indent=2)


def _make_overrides(positions: Positions, program: str) -> str:
    """Return the overrides of a configuration that vLLM and SGLang take, which took its rotations from there."""
    if len(positions.rotations()) > 1:
        _get_only_rotation(positions, program)
    if any(rotation.rule == "dynamic" for rotation in positions.rotations()):
        _refuse(f"{program} has one base for texts of every length, and here it grows with the text")
    candidates = ({"rope_parameters": table} for table in _list_tables(positions, "vllm"))
    return json.dumps(_choose(positions, "vllm", candidates))


def _write_for_vllm(positions: Positions) -> str:
    """Write the flags of vLLM: its overrides of the configuration, and the longest text."""
    length = f" --max-model-len {positions.claimed_length}" if positions.claimed_length else ""
    return f"--hf-overrides '{_make_overrides(positions, '--hf-overrides of vLLM')}'{length}"


def _write_for_sglang(positions: Positions) -> str:
    """Write the flags of SGLang: its overrides of the configuration, and the longest text."""
    length = f" --context-length {positions.claimed_length}" if positions.claimed_length else ""
    overrides = _make_overrides(positions, "--json-model-override-args of SGLang")
    return f"--json-model-override-args '{overrides}'{length}"


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
    name = find_architecture(positions.model or "llama")
    if name is None:
        _refuse(f"llama.cpp has no architecture for {positions.model!r}")
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
    if rotation.extrapolation != 1.0 or rotation.factors:
        _refuse("this ramp or list of factors comes from a file of llama.cpp, and no flag says it")
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
