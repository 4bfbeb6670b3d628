"""What llama.cpp makes of the settings of a GGUF file, and of its flags.

The rules are those of its binding 0.3.36: ``llama_context``, ``rope_yarn``, and ``load_arch_hparams`` of each
architecture.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clockhands.errors import CheckpointError, UsageError
from clockhands.explanation.gguf import FACTORS, read_metadata
from clockhands.explanation.numbers import Flags, Settings, check_count, check_layers, check_number, split_command
from clockhands.explanation.rotation import Pairing, Rotation, scale_base, temperature_of
from clockhands.explanation.table import Layer, Positions, make_layer, read_facts

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
BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}
"""The bounds of YaRN's ramp in turns that llama.cpp takes where nothing gives others."""
RECURRENT = "attention.recurrent_layers"
"""The key that lists which layers do not attend, in architectures of which only every few do."""
WINDOW_KEYS = ("attention.sliding_window", "attention.sliding_window_pattern", "attention.key_length_swa",
               "rope.dimension_count_swa", "rope.freq_base_swa")  # fmt: skip
"""Keys that mean something of architectures with windows alone."""
WITHOUT_EFFECT = re.compile(rf"(?!rope\.|attention\.)|(rope.scaling.finetuned|{'|'.join(WINDOW_KEYS)})$")
"""Keys that are not listed as unknown: of other things, of windows, and one that counts for ``switched`` alone."""


def load_llama_facts() -> dict[str, Any]:
    """Return what is in llama.cpp's code, not in its files.

    ``architectures``: all that it knows; ``converted``: by transformers' name, where its converter gives another one.
    ``halves``: those whose channels are paired in halves (its types NEOX and MROPE; the others are interleaved, NORM).
    ``unrotated``: those that rotate nothing, and what they have; ``unrotated_every``: every how many layers one rotates
    nothing; ``attention_every``: every how many one attends. ``yarn``: which ask for `IN_CODE`.
    ``windows``: those that have windows, with ``every`` how many layers one
    without (0: none; absent: the file must list them), ``first_full`` of each turn instead of the last; the ``size``
    where the file gives none, or one ``fixed`` or of a ``chunk``; the ``only`` number of layers that has them;
    ``both_sides``: half of it on each side. ``unrotated``: layers without a window rotate nothing. ``local``: what
    layers with one rotate by: as all others (absent), by what the file says and no flag (trained), so and not scaled
    (unscaled), or by the base alone (plain); ``base`` where the file gives none for them.
    ``own``: what single architectures have. ``alibi_layers``: with so many layers ALiBi; ``switched``: nothing rotates
    where ``rope.scaling.finetuned`` is false; ``full_share``: of the channels rotate in layers without a window;
    ``own_base``: layers with one have a base of their own though they are plain; ``temperature``: keys of the length by
    which queries grow, ``full_temperature``: its slope in layers that rotate nothing; ``whole``: all logits get the
    square of YaRN's amplitude, and its log multiplier stands as a tenth; ``alpha``: HunYuan's base; ``beta_fast``:
    where the file gives none; ``note``: what the reader should know where a key of `IN_CODE` is set.
    """
    return read_facts("llama_cpp.json")


def _find_own(model: str) -> dict[str, Any]:
    own: dict[str, Any] = load_llama_facts()["own"].get(model.removesuffix("."), {})
    return own


def find_architecture(model_type: str) -> str | None:
    """Return llama.cpp's name of an architecture of transformers; None if it has none."""
    facts, name = load_llama_facts(), model_type.removesuffix("_text")
    plain = re.sub("[_-]", "", name)
    same = (known for known in facts["architectures"] if re.sub("[_-]", "", known) == plain)
    return facts["converted"].get(name) or next(same, None)


def read_gguf(path: Path, flags: str = "") -> Positions:
    """Read what a GGUF file says of positions, under flags of llama.cpp where some are given.

    Raises CheckpointError for a file that is damaged or is no GGUF, UsageError for other flags.
    """
    values, tensors = read_metadata(path)
    return read_settings(values, tensors, str(path), flags)


def read_settings(
    values: Mapping[str, Any], tensors: Mapping[str, tuple[float, ...]], source: str, flags: str = ""
) -> Positions:
    """Read settings by their keys in a GGUF file, and lists of factors by the names in ``FACTORS``."""
    facts, model = load_llama_facts(), str(values.get("general.architecture", ""))
    start, special = f"{model}.", _find_own(model)
    own = {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}
    written = [f"rope.scaling.{key}" for key in IN_CODE if f"rope.scaling.{key}" in own]
    ignored = [key for key in written if key.rpartition(".")[2] not in facts["yarn"].get(model, ())]
    notes = [special["note"]] if written != ignored and "note" in special else []
    if model not in facts["architectures"]:
        notes.append(f"llama.cpp has no architecture {model!r}; it is read as a Llama would be")
    own = {key: value for key, value in own.items() if key not in ignored}
    keys = Settings(own, source, start)
    heads = keys.get("attention.head_count")
    heads = heads[0] if isinstance(heads, list) and heads else heads
    heads = 1 if heads is None else check_count(heads, f"{model}.attention.head_count", source, least=0)
    width = keys.count("attention.key_length") or int(keys.number("embedding_length", 0, 0)) // max(heads, 1)
    channels = keys.count("rope.dimension_count", width, least=0) or 0
    count = check_layers(keys.number("block_count", 1), f"{model}.block_count", source)
    count -= min(keys.count("nextn_predict_layers", 0, least=0) or 0, count - 1)  # heads that predict further tokens
    entries, origin = parse_flags(flags, model)
    flagged = Settings(own | entries, source, start)
    flagged.used = keys.used
    has = "ALiBi" if special.get("alibi_layers") == count else facts["unrotated"].get(model)
    entry = f"no rotation that llama.cpp has for {model!r}: {has}" if has else ""
    if special.get("switched") and keys.get("rope.scaling.finetuned") is False:
        entry = "no rotation (rope.scaling.finetuned is false)"
    rotation = _make_llama_rotation(flagged, width, channels, tensors) if channels >= 2 and not entry else None
    if rotation is not None:
        rotation = rotation.change(origin)
    claimed = keys.count("context_length", least=0) or None
    layers = tuple(_make_layers(keys, flagged, rotation, tensors, count))
    windows = [key for key in WINDOW_KEYS if key not in keys.used and own.get(key)]
    trained = keys.count("rope.scaling.original_context_length") or claimed
    strange = () if entry else keys.list_unread(WITHOUT_EFFECT)
    return Positions(
        f"{source} {flags}".rstrip(), "llama.cpp", model, layers, entry, trained, claimed, tuple(notes),
        unread=(*windows, *ignored), strange=tuple((key.removeprefix(start), shown) for key, shown in strange),
    )  # fmt: skip


def _make_layers(
    keys: Settings, flagged: Settings, rotation: Rotation | None, tensors: Mapping[str, tuple[float, ...]], count: int
) -> Iterator[Layer]:
    """Yield every layer with its rotation and how far it sees. ``keys``: the file's; ``flagged``: under flags."""
    model = keys.prefix.removesuffix(".")
    facts, own = load_llama_facts(), _find_own(model)
    windows, every = facts["windows"].get(model), facts["unrotated_every"].get(model, 0)
    size, inside, local = 0, [False] * count, rotation
    if windows is not None and (size := _find_window(keys, windows, count)):
        pattern, every_nth = keys.get("attention.sliding_window_pattern"), windows.get("every")
        if isinstance(pattern, list):
            inside = [layer < len(pattern) and bool(pattern[layer]) for layer in range(count)]
        elif every_nth is not None:
            if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern >= 0:
                every_nth = pattern
            full = 0 if windows.get("first_full") else every_nth - 1  # the layer of each round that sees everything
            inside = [every_nth == 0 or layer % every_nth != full for layer in range(count)]
        local = _make_local_rotation(keys, flagged, rotation, tensors, windows)
    if rotation is not None and "full_share" in own:
        rotation = dataclasses.replace(rotation, channels=int(rotation.channels * own["full_share"]))
    temperature = local_temperature = ""
    if "full_temperature" in own and size:  # of layers that rotate nothing; none of it is in the file
        temperature = f"queries × (1 + {own['full_temperature']:g} ln(1 + ⌊(p + 1)/{size}⌋)) at position p"
    elif "temperature" in own:
        scale = keys.number("attention.temperature_scale", 0.0)
        keys.get("attention.temperature_length")
        length = None
        for key in own["temperature"]:
            length = length or keys.get(key)
        if scale:
            temperature = local_temperature = f"queries × (1 + {scale:g} ln(1 + ⌊p/{length}⌋)) at position p"
    interval, heads = facts["attention_every"].get(model), keys.get("attention.head_count_kv")
    recurrent = [number == 0 for number in heads] if isinstance(heads, list) else []
    if interval is not None:  # such architectures count no heads, but list the layers, or have an interval
        interval, recurrent = keys.count("full_attention_interval", interval) or 1, keys.get(RECURRENT)
        if not isinstance(recurrent, list):
            recurrent = [bool((layer + 1) % interval) for layer in range(count)]
    for layer in range(count):
        if any(recurrent[layer : layer + 1]):
            yield Layer("recurrent", attends=False)
            continue
        still = bool(every) and (layer + 1) % every == 0
        if not inside[layer]:
            still = still or bool(size and windows.get("unrotated"))
            yield make_layer(None if still else rotation, None, None, temperature)
        else:
            window, chunk = (None, size) if "chunk" in windows else (size, None)
            yield make_layer(None if still else local, window, chunk, local_temperature)


def _find_window(keys: Settings, windows: Mapping[str, Any], count: int) -> int:
    """Return how many tokens layers with a window see, itself included: to both sides in encoders. 0 for no windows."""
    if windows.get("only", count) != count:
        return 0
    written = keys.count("attention.sliding_window", least=0)
    size = windows.get("size", windows.get("chunk", 0)) if written is None else written
    if size and windows.get("both_sides"):
        return int(size) // 2 + 1
    return int(size and (windows.get("chunk") or windows.get("fixed") or size))


def _make_local_rotation(
    keys: Settings,
    flagged: Settings,
    rotation: Rotation | None,
    tensors: Mapping[str, tuple[float, ...]],
    windows: Mapping[str, Any],
) -> Rotation | None:
    """Return the rotation of layers with a window, by `load_llama_facts`; None where the file rotates nothing."""
    rule = windows.get("local")
    if rotation is None or rule is None:
        return rotation
    start = f"{keys.prefix}rope."
    if rule == "plain" and not _find_own(keys.prefix).get("own_base"):  # by the base of all layers
        base, origin = rotation.base, rotation.origin["base"]
    elif local := keys.number("rope.freq_base_swa", 0.0) or windows.get("base"):
        base, origin = local, f"{start}freq_base_swa" if keys.get("rope.freq_base_swa") else "llama.cpp's code"
    else:
        base, origin = keys.number("rope.freq_base", 10000.0), f"{start}freq_base"
    width = keys.count("attention.key_length_swa") or rotation.head_dim
    channels = keys.count("rope.dimension_count_swa") or rotation.channels
    if rule == "plain":
        return Rotation(width, channels, base, pairing=rotation.pairing, origin={**rotation.origin, "base": origin})
    # The factor is the file's own, also where its type or a flag says that there is none; the ramp is that of all.
    scaling = flagged.values.get(NAMES["rule"])
    values = {**flagged.values, NAMES["base"]: base}
    values[NAMES["rule"]] = "none" if rule == "unscaled" else "linear" if scaling == "none" else scaling
    values |= {name: keys.values.get(name) for name in (NAMES["factor"], "rope.scale_linear")}
    under = Settings(values, keys.source, keys.prefix)
    made = _make_llama_rotation(under, width, channels, tensors if rule == "trained" else {})
    return made.change({"base": origin})


def _make_llama_rotation(
    keys: Settings, width: int, channels: int, tensors: Mapping[str, tuple[float, ...]]
) -> Rotation:
    """Return the rotation that llama.cpp makes of the settings of a file, by the rule of its ``llama_context``."""
    model = keys.prefix.removesuffix(".")
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
    base = keys.number("rope.freq_base", 10000.0)
    own = _find_own(model)
    if own.get("alpha") and (alpha := keys.number("rope.scaling.alpha", 0.0)) > 0:
        base = scale_base(base, alpha, width)
    return Rotation(
        width, channels, base, rule, factor,  # type: ignore[arg-type]
        original_length=length if rule in ("yarn", "longrope") or (long and not both) else None,
        beta_fast=keys.number(NAMES["beta_fast"], own.get("beta_fast", BETAS["beta_fast"])),
        beta_slow=keys.number(NAMES["beta_slow"], BETAS["beta_slow"]),
        extrapolation=extrapolation if rule == "yarn" else 1.0, factors=both or short,
        long_factors=() if both else long, amplitude=amplitude, logit_factor=logit_factor, pairing=pairing,
        origin=origins,
    )  # fmt: skip


def _compute_amplitudes(keys: Settings, factor: float, *, ramp: bool) -> tuple[float, float]:
    """Return the factor of cosines and sines, and that of all logits.

    Where the ramp counts, ``rope_yarn`` multiplies by 0.1 ln(factor) + 1; ``llama_context`` divides by it before, and
    puts mscale over mscale_all_dim in place of ``yarn_attn_factor``, in a file and as a flag.
    """
    deepseek = bool(_find_own(keys.prefix).get("whole"))
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


def parse_flags(text: str, model: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return keys of an architecture, without its name, and field -> flag, of flags about position of llama.cpp.

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
        keys[NAMES.get(name, BESIDE)] = 1 / value if flag == "--rope-freq-scale" else value
        origin["amplitude" if name == "beside" else name] = flag
    for entry in known.override_kv:
        match = re.fullmatch(r"([\w.-]+)=(int|float|str|bool):(.*)", entry)
        if match is None:
            raise UsageError(
                f"--llama-flags: --override-kv {entry!r} is not KEY=TYPE:VALUE, TYPE being int, float, bool or str"
            )
        key, kind, value = match.groups()
        try:
            read = value == "true" if kind == "bool" else {"int": int, "float": float, "str": str}[kind](value)
        except ValueError as fault:
            raise UsageError(f"--llama-flags: --override-kv {entry!r} gives no {kind}") from fault
        if key.startswith(f"{model}."):
            keys[ours := key.removeprefix(f"{model}.")] = read
            origin |= {name: f"--override-kv {key}" for name, other in NAMES.items() if ours == other}
    return keys, origin
