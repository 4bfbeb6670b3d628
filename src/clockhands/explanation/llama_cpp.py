"""What llama.cpp makes of a GGUF file and of its flags; and the keys and flags by which it is told a rotation.

The rule is that of its ``llama_context``, ``rope_yarn`` and ``load_hparams``. Of tensors, lists of factors are read.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from clockhands.errors import CheckpointError, UsageError, show_value
from clockhands.explanation.filled import POSITION
from clockhands.explanation.numbers import Flags, check_count, check_layers, check_number, split_command
from clockhands.explanation.rotation import Pairing, Rotation, temperature_of
from clockhands.explanation.table import Layer, Positions

# The formats of values by their number in the file (ggml/docs/gguf.md); 8 is a text, 9 a list.
FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
MOST_ENTRIES, LONGEST_TEXT, LONGEST_LIST = 100_000, 1 << 26, 1 << 24
FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Tensors by which plain frequencies are divided: on texts of every length; up to the original length, and beyond."""
NAMES = {
    "base": "rope.freq_base", "channels": "rope.dimension_count", "rule": "rope.scaling.type",
    "factor": "rope.scaling.factor", "original_length": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow",
    "extrapolation": "rope.scaling.yarn_ext_factor", "amplitude": "rope.scaling.attn_factor",
}  # fmt: skip
"""The key of a GGUF file, after the name of its architecture, by the field of a rotation."""
FLAGS = {
    "base": "--rope-freq-base", "rule": "--rope-scaling", "factor": "--rope-scale",
    "original_length": "--yarn-orig-ctx", "beta_fast": "--yarn-beta-fast", "beta_slow": "--yarn-beta-slow",
    "extrapolation": "--yarn-ext-factor", "beside": "--yarn-attn-factor",
}  # fmt: skip
BESIDE = "rope.scaling.yarn_attn_factor"
"""A factor of the amplitude that counts only where the ramp of YaRN does not."""
IN_CODE = ("yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow", "yarn_log_multiplier")
"""Keys of ``rope.scaling`` that converters write for all architectures, and llama.cpp asks for in the code of a few."""
WITHOUT_EFFECT = ("rope.scaling.finetuned",)
"""Keys about position that llama.cpp reads and does nothing with."""
DEEPSEEK = ("deepseek2", "deepseek32")
"""Architectures that multiply all logits by the square of YaRN's amplitude; their log multiplier stands as a tenth."""


@functools.cache
def load_llama_facts() -> dict[str, Any]:
    """Return what is in llama.cpp's code, not in its files.

    ``halves``: architectures whose channels are paired in halves (its type NEOX; the others are interleaved, NORM).
    ``window_patterns``: every how many layers one has no window. ``local_bases``: bases of layers with a window;
    ``plain_windows``: architectures whose layers with a window are never scaled. ``yarn``: which ask for `IN_CODE`.
    """
    facts: dict[str, Any] = json.loads(resources.files(__package__).joinpath("llama_cpp.json").read_text("utf8"))
    return facts


@dataclass(frozen=True)
class _Keys:
    """The settings of an architecture in a file; those that were asked for are remembered."""

    values: Mapping[str, Any]
    source: str
    model: str
    used: set[str] = field(default_factory=set)

    def get(self, key: str) -> Any:
        self.used.add(f"{self.model}.{key}")
        return self.values.get(f"{self.model}.{key}")

    def number(self, key: str, default: float, least: float = -math.inf) -> float:
        value = self.get(key)
        return default if value is None else check_number(value, f"{self.model}.{key}", self.source, least)

    def count(self, key: str, default: int | None = None, least: int = 1) -> int | None:
        value = self.get(key)
        return default if value is None else check_count(value, f"{self.model}.{key}", self.source, least)

    def list_unread(self) -> tuple[tuple[str, str], ...]:
        """Return keys about position that nothing asked for, without the architecture, with their values."""
        start = f"{self.model}."
        return tuple(
            (key.removeprefix(start), show_value(value))
            for key, value in sorted(self.values.items())
            if key.startswith((f"{start}rope.", f"{start}attention.")) and key not in self.used
            if POSITION.search(key.removeprefix(start)) and key.removeprefix(start) not in WITHOUT_EFFECT
        )


def find_architecture(model_type: str) -> str | None:
    """Return llama.cpp's name of an architecture of transformers; None if it has none."""

    def plain(name: str) -> str:
        return re.sub("[_-]", "", name.removesuffix("_text"))

    known = load_llama_facts()["architectures"]
    return next((name for name in known if plain(name) == plain(model_type)), None)


def read_gguf(path: Path, flags: str = "") -> Positions:
    """Read what a GGUF file says of positions, under flags of llama.cpp where some are given.

    Raises CheckpointError for a file that is damaged or is no GGUF, UsageError for other flags.
    """
    values, tensors = _read_metadata(path)
    source, model = str(path), str(values.get("general.architecture", ""))
    keys = _Keys(values, source, model)
    heads = keys.get("attention.head_count")
    heads = heads[0] if isinstance(heads, list) and heads else heads
    heads = 1 if heads is None else check_count(heads, f"{model}.attention.head_count", source)
    width = keys.count("attention.key_length") or int(keys.number("embedding_length", 0, 0)) // heads
    channels = keys.count("rope.dimension_count", width, least=0) or 0
    rotation = make_llama_rotation(keys, width, channels, tensors) if channels >= 2 else None
    count = check_layers(keys.number("block_count", 1), f"{model}.block_count", source)
    window = keys.count("attention.sliding_window", least=0) or None
    local = _make_local_rotation(rotation, keys)
    pattern = keys.get("attention.sliding_window_pattern")
    has_window = _list_windows(pattern, model, count) if window else [False] * count
    if flags and rotation is not None:
        entries, origin = _parse_flags(flags, model)
        keys = _Keys({**values, **entries}, source, model, keys.used)
        rotation = make_llama_rotation(keys, width, channels, tensors)
        rotation = dataclasses.replace(rotation, origin={**rotation.origin, **origin})
        if all(has_window):
            local = rotation
    claimed = keys.count("context_length", least=0) or None
    temperature = _describe_temperature(keys)
    written = [key for key in IN_CODE if values.get(f"{model}.rope.scaling.{key}") is not None]
    written = [key for key in written if key not in load_llama_facts()["yarn"].get(model, ())]
    note = f"llama.cpp's own code for {model!r} does not ask for {', '.join(written)}; here they count as the file says"
    return Positions(
        source=f"{source} {flags}".rstrip(),
        program="llama.cpp",
        model=model,
        layers=tuple(
            Layer("sliding_attention", local, window, temperature=temperature)
            if inside
            else Layer("full_attention", rotation, temperature=temperature)
            for inside in has_window
        ),
        trained_length=keys.count("rope.scaling.original_context_length") or claimed,
        claimed_length=claimed,
        notes=(note,) if written else (),
        strange=keys.list_unread(),
    )


def _describe_temperature(keys: _Keys) -> str:
    """Describe the factor of queries by position that Mistral's converter writes; empty where there is none."""
    scale, length = keys.number("attention.temperature_scale", 0.0), keys.get("attention.temperature_length")
    length = length or keys.get("rope.scaling.original_context_length")
    if not scale:
        return ""
    return f"queries × (1 + {scale:g} ln(1 + ⌊p/{length}⌋)) at position p"


def _list_windows(pattern: Any, model: str, count: int) -> list[bool]:
    """Return which layers have the window, from the file or from llama.cpp's code."""
    if isinstance(pattern, list):
        return [bool(pattern[layer]) if layer < len(pattern) else False for layer in range(count)]
    every = pattern if isinstance(pattern, int) and pattern > 0 else load_llama_facts()["window_patterns"].get(model, 0)
    return [every == 0 or (layer + 1) % every != 0 for layer in range(count)]


def _make_local_rotation(rotation: Rotation | None, keys: _Keys) -> Rotation | None:
    """Return the rotation of layers with a window, which no flag changes, and some architectures do not scale."""
    facts = load_llama_facts()
    base = keys.number("rope.freq_base_swa", facts["local_bases"].get(keys.model, 0.0))
    width, channels = keys.count("attention.key_length_swa"), keys.count("rope.dimension_count_swa")
    if rotation is None:
        return None
    origin = dict(rotation.origin)
    changed: dict[str, Any] = {}
    if width or channels:
        changed = {"head_dim": width or rotation.head_dim, "channels": channels or width or rotation.channels}
        origin["channels"] = f"{keys.model}.rope.dimension_count_swa" if channels else origin["channels"]
    if base:
        changed["base"], origin["base"] = base, f"{keys.model}.rope.freq_base_swa, or llama.cpp's code"
    if keys.model in facts["plain_windows"]:
        changed |= {"rule": "default", "factor": 1.0, "amplitude": 1.0, "extrapolation": 1.0, "original_length": None}
    return dataclasses.replace(rotation, **changed, origin=origin) if changed else rotation


def make_llama_rotation(keys: _Keys, width: int, channels: int, tensors: Mapping[str, tuple[float, ...]]) -> Rotation:
    """Return the rotation that llama.cpp makes of the settings of a file, by the rule of its ``llama_context``.

    ``tensors``: lists of factors by the names in ``FACTORS``. Raises CheckpointError for a rule that is not known.
    """
    model = keys.model
    scaling = str(keys.get("rope.scaling.type") or "linear")  # what llama.cpp takes where the file says nothing
    if scaling not in ("none", "linear", "yarn", "longrope"):
        raise CheckpointError(f"{keys.source} sets {model}.rope.scaling.type = {scaling!r}, which is not known")
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0)) or 1.0
    factor = 1.0 if scaling == "none" else factor
    # How much of the ramp of YaRN counts: below 0 for what the type says, 0 for linear scaling alone.
    extrapolation = keys.number("rope.scaling.yarn_ext_factor", -1.0)
    extrapolation = float(scaling == "yarn") if extrapolation < 0 else extrapolation
    both, short, long = (tensors.get(name, ()) for name in FACTORS)
    rule = "yarn" if extrapolation else "linear" if factor != 1 else "longrope" if long and not both else "default"
    amplitude, logit_factor = _compute_amplitudes(keys, factor, ramp=bool(extrapolation))
    origins = {
        name: f"{model}.{key}" if keys.get(key) is not None else "llama.cpp's default" for name, key in NAMES.items()
    }
    origins |= {"factors": FACTORS[0] if both else FACTORS[1], "long_factors": FACTORS[2]}
    all_dim = rule == "yarn" and keys.get("rope.scaling.yarn_log_multiplier")
    origins["amplitude"] = (
        f"{model}.rope.scaling.yarn_log_multiplier" if all_dim
        else "0.1 ln(factor) + 1" if rule == "yarn" else f"{model}.rope.scaling.attn_factor, yarn_attn_factor"
    )  # fmt: skip
    pairing: Pairing = "halves" if model in load_llama_facts()["halves"] else "interleaved"
    length = keys.count("rope.scaling.original_context_length") or keys.count("context_length", least=0) or None
    return Rotation(
        head_dim=width,
        channels=channels,
        base=keys.number("rope.freq_base", 10000.0),
        rule=rule,  # type: ignore[arg-type]
        factor=factor,
        original_length=length if rule in ("yarn", "longrope") or (long and not both) else None,
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 8.0 if model == "grok" else 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        extrapolation=extrapolation if rule == "yarn" else 1.0,
        factors=both or short,
        long_factors=() if both else long,
        amplitude=amplitude,
        logit_factor=logit_factor,
        pairing=pairing,
        origin=origins,
    )


def _compute_amplitudes(keys: _Keys, factor: float, *, ramp: bool) -> tuple[float, float]:
    """Return the factor of cosines and sines, and that of all logits.

    Where the ramp counts, ``rope_yarn`` multiplies by 0.1 ln(factor) + 1; ``llama_context`` divides by it before, and
    puts mscale over mscale_all_dim in place of ``yarn_attn_factor``, in a file and as a flag.
    """
    deepseek = keys.model in DEEPSEEK
    all_dim = keys.number("rope.scaling.yarn_log_multiplier", 0.0) * (10 if deepseek else 1)
    of_file, beside = keys.number("rope.scaling.attn_factor", 1.0), keys.number(BESIDE, 1.0)
    above = all_dim if deepseek and all_dim else 1.0
    ratio = temperature_of(factor, above) / (temperature_of(factor, all_dim) if all_dim else 1.0)
    amplitude = of_file * (ratio if ramp else beside)
    if not deepseek:
        return amplitude, 1.0
    # deepseek2.cpp takes the amplitude as if there were a ramp, and what it finds for the whole of queries and keys.
    whole = (amplitude if ramp else amplitude * temperature_of(factor, 1.0)) * temperature_of(factor, all_dim)
    return amplitude, whole * whole


def list_llama_keys(rotation: Rotation) -> dict[str, float | int | str]:
    """Return what llama.cpp must be told of a rotation, by keys of GGUF without the architecture.

    Raises CheckpointError for a rule that llama.cpp does not have.
    """
    if rotation.rule in ("dynamic", "proportional") or not rotation.truncate:
        lacks = f"has no rule {rotation.rule!r}" if rotation.truncate else "always rounds the bounds of YaRN"
        raise CheckpointError(f"llama.cpp {lacks}")
    yarn = rotation.rule == "yarn"
    fields = ["base", "channels"]
    fields += ["rule", "factor"] if rotation.rule in ("linear", "yarn") else []
    fields += ["original_length", "beta_fast", "beta_slow"] if yarn else []
    fields += ["extrapolation"] if yarn and rotation.extrapolation != 1 else []
    entries = {NAMES[name]: getattr(rotation, name) for name in fields if getattr(rotation, name) is not None}
    beside = rotation.amplitude / (temperature_of(rotation.factor, 1.0) if yarn else 1.0)
    return entries | ({NAMES["amplitude"]: beside} if abs(beside - 1) > 1e-9 else {})


def read_llama_keys(keys: Mapping[str, float | int | str], model: str, rotation: Rotation) -> Rotation:
    """Return what llama.cpp makes of keys of ``list_llama_keys``, for the heads of a rotation."""
    named = {f"{model}.{key}": value for key, value in keys.items()}
    return make_llama_rotation(_Keys(named, "", model), rotation.head_dim, rotation.channels, {})


def write_llama_flags(keys: Mapping[str, float | int | str], model: str) -> str:
    """Return flags of llama.cpp that tell it keys of ``list_llama_keys``.

    The amplitude has none, as ``--yarn-attn-factor`` counts only without a ramp: the key of the file is overridden.
    """
    entries = {NAMES["rule"]: "none", **keys}
    by_key = {NAMES[name]: flag for name, flag in FLAGS.items() if name in NAMES}
    flags = [f"{flag} {entries[key] if isinstance(entries[key], str) else format(entries[key], '.10g')}"
             for key, flag in by_key.items() if key in entries]  # fmt: skip
    if NAMES["amplitude"] in entries:
        flags.append(f"--override-kv {model}.{NAMES['amplitude']}=float:{entries[NAMES['amplitude']]:.10g}")
    return " ".join(flags)


def _parse_flags(text: str, model: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return keys of an architecture with their values, and field -> flag, of flags about position of llama.cpp.

    Raises UsageError for other flags, CheckpointError for numbers that mean nothing.
    """
    flags = Flags(prog="--llama-flags", add_help=False, allow_abbrev=False)
    flags.add_argument("--rope-scaling", choices=("none", "linear", "yarn"))
    flags.add_argument("--yarn-orig-ctx", type=int)
    for name in {"--rope-freq-scale", *FLAGS.values()} - {"--rope-scaling", "--yarn-orig-ctx"}:
        flags.add_argument(name, type=float)
    flags.add_argument("--override-kv", action="append", default=[])
    known: argparse.Namespace = flags.parse_args(split_command(text, "--llama-flags"))
    keys: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, flag in [("factor", "--rope-freq-scale"), *FLAGS.items()]:
        value = getattr(known, flag[2:].replace("-", "_"))
        if value is None:
            continue
        if name != "rule":
            check_number(value, flag, "--llama-flags", least=-1.0 if "yarn" in flag else 0.0)
            if value < 0 or (value == 0 and name in ("base", "factor", "original_length")):
                continue  # what llama.cpp takes for a number that is not given
        keys[f"{model}.{NAMES.get(name, BESIDE)}"] = 1 / value if flag == "--rope-freq-scale" else value
        origin["amplitude" if name == "beside" else name] = flag
    for entry in known.override_kv:
        match = re.fullmatch(r"([\w.-]+)=(int|float|str|bool):(.*)", entry)
        if match is None:
            raise UsageError(
                f"--llama-flags: --override-kv {entry!r} is not KEY=TYPE:VALUE, TYPE being int, float, bool or str"
            )
        key, kind, value = match.groups()
        try:
            keys[key] = value == "true" if kind == "bool" else {"int": int, "float": float, "str": str}[kind](value)
        except ValueError as fault:
            raise UsageError(f"--llama-flags: --override-kv {entry!r} gives no {kind}") from fault
        origin |= {name: f"--override-kv {key}" for name, ours in NAMES.items() if key == f"{model}.{ours}"}
    return keys, origin


def apply_llama_flags(positions: Positions, text: str) -> Positions:
    """Return what llama.cpp makes of a converted ``config.json`` with its flags ``--rope-*`` and ``--yarn-*``.

    A number that is not given is the file's own. Where only some layers have a window, these keep theirs. Raises
    UsageError for a flag that is not of this kind, CheckpointError for a rule that llama.cpp does not have.
    """
    model = find_architecture(positions.model) or "llama"
    entries, origin = _parse_flags(text, model)
    mixed = len({layer.window is None for layer in positions.layers if layer.rotation}) > 1

    def apply(rotation: Rotation) -> Rotation:
        own = {f"{model}.{key}": value for key, value in list_llama_keys(rotation).items()}
        length = rotation.original_length if rotation.rule in ("yarn", "longrope") else positions.claimed_length
        own |= {f"{model}.{NAMES['original_length']}": length} if length else {}
        factors = rotation.factors
        if rotation.rule == "llama3":  # a list of factors, once it is converted
            plain = dataclasses.replace(rotation, rule="default").frequencies()
            factors = tuple(a / b for a, b in zip(plain, rotation.frequencies(), strict=True))
        tensors = {FACTORS[1] if rotation.long_factors else FACTORS[0]: factors, FACTORS[2]: rotation.long_factors}
        made = make_llama_rotation(
            _Keys({**own, **entries}, text, model), rotation.head_dim, rotation.channels, tensors
        )
        kept = {name: rotation.origin[name] for name in rotation.origin.keys() - origin.keys() if name != "amplitude"}
        if made.rule == "yarn" and rotation.rule != "yarn":
            kept["original_length"] = "the trained length"
        return dataclasses.replace(
            made, pairing=rotation.pairing, direction=rotation.direction, logit_factor=rotation.logit_factor,
            origin={**made.origin, **kept, **origin},
        )  # fmt: skip

    made = {rotation: apply(rotation) for rotation in positions.rotations()}
    layers = tuple(
        layer
        if layer.rotation is None or (mixed and layer.window)
        else dataclasses.replace(layer, rotation=made[layer.rotation])
        for layer in positions.layers
    )
    return dataclasses.replace(positions, layers=layers, source=f"{positions.source} {text}", program="llama.cpp")


def _read_metadata(path: Path) -> tuple[Mapping[str, Any], dict[str, tuple[float, ...]]]:
    """Return the metadata of a GGUF file, and the factors of its frequencies by the names of their tensors.

    Raises CheckpointError for what is no GGUF file of version 2 or 3, is cut off, or counts more than any file has.
    """
    try:
        with path.open("rb") as file:
            return _read_file(file, path)
    except OSError as fault:
        raise CheckpointError(f"cannot read {path}: {fault.strerror}") from fault
    except (struct.error, ValueError, OverflowError, MemoryError) as fault:
        raise CheckpointError(f"{path} is damaged: its metadata ends or breaks off within a value") from fault


def _read_file(file: BinaryIO, path: Path) -> tuple[dict[str, Any], dict[str, tuple[float, ...]]]:
    if file.read(4) != b"GGUF":
        raise CheckpointError(f"{path} is not a GGUF file: it does not begin with GGUF")
    version = _unpack(file, "<I")
    if version not in (2, 3):
        raise CheckpointError(f"{path} is of GGUF version {version}; versions 2 and 3 are read")
    tensors, entries = _unpack(file, "<Q"), _unpack(file, "<Q")
    if max(tensors, entries) > MOST_ENTRIES:
        raise CheckpointError(f"{path} counts {tensors:,} tensors and {entries:,} settings, which no file has")
    values: dict[str, Any] = {}
    for _ in range(entries):
        key = _read_text(file)
        values[key] = _read_value(file, _unpack(file, "<I"))
    places: dict[str, tuple[int, int]] = {}
    for _ in range(tensors):
        name, dimensions = _read_text(file), _unpack(file, "<I")
        if dimensions > 8:
            raise struct.error
        shape = [_unpack(file, "<Q") for _ in range(dimensions)]
        kind, offset = _unpack(file, "<I"), _unpack(file, "<Q")
        if name in FACTORS and kind == 0 and dimensions == 1 and shape[0] <= LONGEST_LIST:
            places[name] = shape[0], offset
    alignment = values.get("general.alignment", 32)
    begin = file.tell()
    begin += -begin % (alignment if isinstance(alignment, int) and alignment > 0 else 32)
    factors = {}
    for name, (count, offset) in places.items():
        file.seek(begin + offset)
        factors[name] = struct.unpack(f"<{count}f", file.read(4 * count))
    return values, factors


def _unpack(file: BinaryIO, layout: str) -> Any:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))[0]


def _read_text(file: BinaryIO) -> str:
    length = _unpack(file, "<Q")
    if length > LONGEST_TEXT:
        raise struct.error
    text = file.read(length)
    if len(text) != length:
        raise struct.error
    return text.decode("utf8")


def _read_value(file: BinaryIO, kind: int, depth: int = 0) -> Any:
    """Read a value of a type by its number (8: a text, 9: a list); ``depth`` counts the lists around it."""
    if kind == 8:
        return _read_text(file)
    if kind == 9:
        inner, count = _unpack(file, "<I"), _unpack(file, "<Q")
        if count > LONGEST_LIST or depth > 4:
            raise struct.error
        return [_read_value(file, inner, depth + 1) for _ in range(count)]
    if kind not in FORMATS:
        raise struct.error
    return _unpack(file, FORMATS[kind])
