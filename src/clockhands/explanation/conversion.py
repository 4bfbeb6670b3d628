"""Write a position configuration for another program, or say why that program cannot be told it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from clockhands.errors import CheckpointError, ConfigError, UsageError, describe_unknown
from clockhands.explanation.difference import compare
from clockhands.explanation.huggingface import PROGRAMS, lay_over, read_huggingface
from clockhands.explanation.huggingface_rotation import LABELS, SCALED
from clockhands.explanation.llama_cpp import FLAGS, NAMES, find_architecture, read_settings
from clockhands.explanation.llama_cpp_settings import list_settings
from clockhands.explanation.rotation import Rotation, temperature_of
from clockhands.explanation.table import Positions


def convert(positions: Positions, form: str) -> str:
    """Return the configuration as another program wants it: JSON, GGUF keys, or flags.

    ``form``: a key of ``FORMATS``. Raises UsageError for another, ConfigError for what that program cannot be told.
    """
    if form not in FORMATS:
        raise UsageError(describe_unknown("format", form, FORMATS))
    if not positions.rotations():
        _refuse(f"{positions.source} rotates nothing that is known, so there is nothing to write")
    return FORMATS[form](positions)


def _refuse(reason: str) -> NoReturn:
    raise ConfigError([reason], "the configuration")


def _require_one_rotation(positions: Positions, program: str) -> None:
    rotations = positions.rotations()
    if len({(r.base, r.rule, r.factor, r.channels) for r in rotations}) > 1:
        _refuse(f"{program} has one rotation for all layers, and here are {len(rotations)}")


CARRIED = re.compile(
    "llama_4_scaling_beta|mscale|mscale_all_dim|mrope_section|mrope_interleaved|short_mscale|long_mscale"
)
"""Keys of a table of transformers that no rotation has, and that are taken over from the file."""
REPLACED = re.compile(
    "rope_parameters|rope_scaling|rope_theta|rope_local_base_freq|global_rope_theta|local_rope_theta|rotary_emb_base|"
    "rotary_pct|partial_rotary_factor|partial_rotary_factors|swa_rope_theta|compress_rope_theta|"
    "original_max_position_embeddings|rotary_dim"
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
    rule = rotation.rule
    table: dict[str, Any] = {"rope_type": rule, "rope_theta": rotation.base}
    share = rotation.share if rule == "proportional" else rotation.channels / rotation.head_dim
    if rule == "proportional" or share != 1:
        table["partial_rotary_factor"] = share
    table |= {key: value for key, value in (carried or {}).items() if CARRIED.fullmatch(key)}
    if rotation.factors and rule != "longrope":
        _refuse("transformers has no list of factors without a rule (longrope)")
    if rotation.extrapolation != 1.0:
        if program != "vllm":
            _refuse(f"transformers does not multiply the ramp of YaRN ({rotation.extrapolation:g})")
        table["extrapolation_factor"] = rotation.extrapolation
    if rule not in ("default", "proportional") or rotation.factor != 1.0:
        table["factor"] = rotation.factor
    if rule in SCALED:
        table["original_max_position_embeddings"] = rotation.original_length
    if rule == "llama3":
        table |= {"low_freq_factor": rotation.low_frequency_factor, "high_freq_factor": rotation.high_frequency_factor}
    elif rule == "yarn":
        table |= {"beta_fast": rotation.beta_fast, "beta_slow": rotation.beta_slow, "truncate": rotation.truncate}
        # vLLM multiplies what it computes itself by attn_factor, and reads no attention_factor; SGLang took it over.
        own = {"attn_factor": rotation.amplitude / temperature_of(rotation.factor, 1.0)}
        table |= own if program == "vllm" else {"attention_factor": rotation.amplitude}
    elif rule == "longrope":
        names = ("short_mscale", "long_mscale") if program == "vllm" else ("attention_factor",)
        table |= dict.fromkeys(names, rotation.amplitude)
        table |= {"short_factor": list(rotation.factors), "long_factor": list(rotation.long_factors)}
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
        _require_one_rotation(positions, PROGRAMS[program])
        if (factor := positions.rotations()[0].logit_factor) != 1:
            _refuse(f"logits are multiplied by {factor:.4g} in its code, which only keys of an architecture can say")
        return next(iter(candidates))
    bare = {key: value for key, value in positions.part.items() if not REPLACED.fullmatch(key)}
    expected = dataclasses.replace(positions, strange=())
    readers = {program, "transformers5"} if program == "transformers4" else {program}  # which reads older files too
    for keys in candidates:
        # A rule of the file goes before a new table, so that it has to be taken back, but where vLLM replaces it.
        taken_back = positions.part.get("rope_scaling") and "rope_scaling" not in keys and program != "vllm"
        beside = {"rope_scaling": None} if taken_back else {}
        files = [{**part, **beside, **keys} for part in (bare, positions.part)]
        if program == "vllm" and not positions.prefix:
            files = [lay_over(part, json.dumps(keys)) for part in (bare, positions.part)]
        elif program == "vllm":  # whose overrides are merged into what transformers made of a part
            made = {"part": {**bare, "rope_parameters": dict(positions.tables)}}
            files = [lay_over(made, json.dumps({"part": keys}))["part"]]
        try:
            read = [read_huggingface(file, positions.source, reader) for file in files for reader in readers]
        except CheckpointError:
            continue
        if all(compare(expected, dataclasses.replace(again, strange=())) is None for again in read):
            return {**beside, **keys}  # in this order: transformers 5 takes the first for another name of the second
    _refuse(
        f"{PROGRAMS[program]} has no keys of {positions.model or 'this architecture'} that it would read as these "
        "positions; give --to an architecture, as gemma3_text, for all keys of its configuration"
    )


def _write_for_transformers5(positions: Positions) -> str:
    """Write a table of transformers 5: one for all layers, or one for each kind."""
    length = {"max_position_embeddings": positions.claimed_length} if positions.claimed_length else {}
    candidates = ({"rope_parameters": table, **length} for table in _list_tables(positions, ""))
    return json.dumps(_choose(positions, "transformers5", candidates), indent=2)


def _write_for_transformers4(positions: Positions) -> str:
    """Write keys of transformers 4, which has one rule, and beside it a plain base for layers with a window."""
    rotations = positions.rotations()
    if any(rotation.rule == "proportional" for rotation in rotations):
        _refuse("transformers 4 has no rule 'proportional'")
    rotating = [layer for layer in positions.layers if layer.rotation]
    local = next((layer.rotation for layer in rotating if "sliding" in layer.kind), None)
    whole = next((layer.rotation for layer in rotating if "sliding" not in layer.kind), local)
    assert whole is not None  # something rotates

    def list_candidates() -> Iterator[dict[str, Any]]:
        for base, share, local_base in OLD_NAMES:
            table = _make_rope_table(whole, carried=positions.tables if "rope_theta" in positions.tables else {})
            keys = {base: table.pop("rope_theta")}
            if local is not None and local.base != whole.base:
                keys[local_base] = local.base
            if "partial_rotary_factor" in table:
                keys[share] = table.pop("partial_rotary_factor")
            if whole.rule == "longrope" and positions.model in ("phi3", "phi4_multimodal"):
                # Their classes take three keys and no more, the length beside them, and the amplitude of the rule.
                table = {"type": "longrope", **{name: table[name] for name in ("short_factor", "long_factor")}}
                keys["original_max_position_embeddings"] = whole.original_length
            keys["rope_scaling"] = table if table != {"rope_type": "default"} else None
            if positions.claimed_length:
                keys["max_position_embeddings"] = positions.claimed_length
            yield keys

    return json.dumps(_choose(positions, "transformers4", list_candidates()), indent=2)


def _write_overrides(positions: Positions, program: str, flag: str, length_flag: str) -> str:
    """Write the flags of vLLM or SGLang: overrides of the configuration, as vLLM reads it, and the longest text."""
    if len(positions.rotations()) > 1:
        _require_one_rotation(positions, f"{flag} of {program}")
    if any(rotation.rule == "dynamic" for rotation in positions.rotations()):
        _refuse(f"{flag} of {program} has one base for texts of every length, and here it grows with the text")
    candidates = ({"rope_parameters": table} for table in _list_tables(positions, "vllm"))
    length = f" {length_flag} {positions.claimed_length}" if positions.claimed_length else ""
    keys = _choose(positions, "vllm", candidates)
    for name in reversed(positions.prefix.split(".")[:-1]):
        keys = {name: keys}
    return f"{flag} '{json.dumps(keys)}'{length}"


def _read_as_llama_cpp(positions: Positions) -> tuple[str, dict[str, Any]]:
    """Return llama.cpp's name of an architecture, and the settings of a GGUF file that mean the same there."""
    name = find_architecture(positions.model or "llama")
    if name is None:
        _refuse(f"llama.cpp has no architecture for {positions.model!r}")
    rotation = positions.rotations()[0]
    lists = {"llama3": ("Llama 3's rule", "rope_freqs.weight"), "longrope": ("LongRoPE", "rope_factors_long.weight, …")}
    if rotation.rule in lists or rotation.factors:
        what, tensor = lists.get(rotation.rule, ("these frequencies", "rope_freqs.weight"))
        _refuse(f"llama.cpp takes the factors of {what} from tensors ({tensor}), not from keys or flags")
    try:
        values, tensors = list_settings(positions, name)
        again = read_settings(values, tensors, "what llama.cpp reads")
    except CheckpointError as fault:
        _refuse(str(fault))
    _refuse_other(positions, again, f"no keys of llama.cpp's {name} mean these positions")
    return name, values


def _refuse_other(positions: Positions, again: Positions, what: str) -> None:
    """Raise ConfigError where a program would read other positions."""
    difference = compare(dataclasses.replace(positions, strange=()), dataclasses.replace(again, strange=()))
    if difference is not None:
        of = "" if difference.layer is None else f"of layer {difference.layer}: "
        causes = "; ".join(f"{field} {here} against {there}" for field, here, there in difference.causes)
        _refuse(f"{what} ({of}{difference.what}{': ' * bool(causes)}{causes})")


STRUCTURE = ("block_count", "attention.key_length", "attention.head_count_kv")


def _write_gguf(positions: Positions) -> str:
    """Write keys of a GGUF file, one a line; windows too, and the claimed length."""
    name, values = _read_as_llama_cpp(positions)
    # What its weights need, and what says nothing new of positions.
    structure = ("general.architecture", *(f"{name}.{key}" for key in STRUCTURE))
    lines = []
    for key, value in values.items():
        if key not in structure:
            shown = f"{value:.10g}" if isinstance(value, float) else value
            lines.append(f"{key} = {json.dumps(value) if isinstance(value, list) else shown}")
    return "\n".join(lines)


def _write_llama_flags(positions: Positions) -> str:
    """Write flags of llama.cpp; none of the amplitude counts under a ramp, so the key of the file is overridden."""
    name, values = _read_as_llama_cpp(positions)
    start = f"{name}.rope."
    entries = {NAMES["rule"]: "none"}
    entries |= {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(start)}
    words = []
    for field, flag in FLAGS.items():
        if (value := entries.get(NAMES.get(field, ""))) is not None:
            words.append(f"{flag} {value if isinstance(value, str) else format(value, '.10g')}")
    if NAMES["amplitude"] in entries:
        words.append(f"--override-kv {name}.{NAMES['amplitude']}=float:{entries[NAMES['amplitude']]:.10g}")
    flags = " ".join(words)
    # Over a file that says nothing of how it rotates, the flags must say the same.
    said = [key for key in values if key.startswith(f"{start}scaling.") or key == f"{start}freq_base"]
    bare = {key: value for key, value in values.items() if key not in said}
    again = read_settings(bare, {}, "what llama.cpp reads", flags)
    _refuse_other(positions, again, "no flags of llama.cpp mean these positions")
    return flags


FORMATS: dict[str, Callable[[Positions], str]] = {
    "hf5": _write_for_transformers5,
    "hf4": _write_for_transformers4,
    "vllm": lambda read: _write_overrides(read, "vLLM", "--hf-overrides", "--max-model-len"),
    "sglang": lambda read: _write_overrides(read, "SGLang", "--json-model-override-args", "--context-length"),
    "gguf": _write_gguf,
    "llama.cpp": _write_llama_flags,
}
"""What a configuration can be written for, by the name that ``--to`` takes."""
