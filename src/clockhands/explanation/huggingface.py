"""Reads ``config.json`` as transformers 5, transformers 4 or vLLM does: the same keys mean different things there."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.explanation.config_reader import Reader, Settings, Values, find_settings, list_kinds, load_families
from clockhands.explanation.rotation import Rotation, check_number, temperature_of
from clockhands.explanation.table import Layer, Positions

__all__ = ["PROGRAMS", "read_huggingface"]

PROGRAMS = {
    "transformers5": "transformers 5",
    "transformers4": "transformers 4",
    "vllm": "vLLM 0.25",
}
"""Programs that read a ``config.json``, by the name that ``--as`` takes."""

INSIDE = ("text_config", "llm_config", "language_config", "thinker_config", "decoder", "global_config")
"""Keys under which a model of several kinds of input keeps the part that reads text."""
WITHOUT_ATTENTION = ("linear_attention", "mamba", "conv", "recurrent", "moe", "mlp")
SCALED = ("llama3", "yarn", "longrope")
POSITION_KEYS = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor", "rope_local_base_freq")


def read_huggingface(raw: Mapping[str, Any], source: str, program: str = "transformers5") -> Positions:
    """Read a ``config.json`` as one of `PROGRAMS` reads it.

    Raises CheckpointError for values that no program can use: numbers that are none, heads that do not divide the
    width, lists of the wrong length.
    """
    text, prefix = _find_text_part(raw)
    model = str(text.get("model_type") or raw.get("model_type") or "")
    family = load_families().get(model) or load_families().get(f"{model}_text") or {}
    reader = Reader(text, family, source, program, prefix)
    settings, unread = find_settings(reader)
    entry = _find_other_entry(reader)
    layers = tuple(_make_layers(reader, {} if entry else settings))
    unknown = not family and not entry
    notes = [f"transformers 5.23 has no rotary model {model!r}; it is read as Llama would be"] if unknown else []
    claimed = reader.count("max_position_embeddings", "n_positions", "max_sequence_length", "model_max_length")
    return Positions(
        source=source,
        program=PROGRAMS[program],
        model=model,
        layers=layers,
        entry=entry,
        trained_length=_find_trained_length(layers, claimed),
        claimed_length=claimed,
        notes=tuple(notes),
        unread=tuple(unread),
    )


def _find_other_entry(reader: Reader) -> str:
    """Return how positions enter where a configuration rotates nothing; empty if it rotates."""
    raw, model = reader.raw, reader.raw.get("model_type")
    kind = raw.get("position_embedding_type")
    if raw.get("alibi") is True:
        return "ALiBi (alibi is true)"
    if model in ("esm", "granitemoehybrid") and kind not in ("rotary", "rope"):
        return f"no rotation (position_embedding_type is {kind!r})"
    if model == "zamba2" and not raw.get("use_mem_rope"):
        return "no rotation (use_mem_rope is not set)"
    if not reader.family and not any(raw.get(key) for key in POSITION_KEYS):
        return "no rotation that the file names (a table, a bias or nothing: the weights tell)"
    return ""


def _find_text_part(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the part of a configuration that reads text, and the prefix of its keys."""
    prefix = ""
    while inside := next((key for key in INSIDE if isinstance(raw.get(key), dict)), None):
        raw, prefix = raw[inside], f"{prefix}{inside}."
    return raw, prefix


def _find_trained_length(layers: tuple[Layer, ...], claimed: int | None) -> int | None:
    """Return the length that rules scale from, the largest of all layers; without a rule, the claimed one."""
    lengths = [layer.rotation.original_length for layer in layers if layer.rotation and layer.rotation.original_length]
    return max(lengths) if lengths else claimed


def _make_layers(reader: Reader, settings: Settings) -> list[Layer]:
    """Return every layer with its rotation and with how far it sees."""
    kinds = list_kinds(reader)
    rotations = {kind: _make_rotation(reader, values, kind) for kind, values in settings.items()}
    window = reader.count("sliding_window", "attention_window_size")
    chunk = reader.count("attention_chunk_size")
    layers = []
    for number, kind in enumerate(kinds):
        attends = not any(word in kind for word in WITHOUT_ATTENTION) or kind == "hybrid"
        rotation = rotations.get(kind, rotations.get(None, next(iter(rotations.values()), None)))
        if not attends or not _rotates(reader, number, kind):
            rotation = None
        layers.append(
            Layer(
                kind=kind,
                rotation=rotation,
                window=window if "sliding" in kind else None,
                chunk=chunk if "chunked" in kind else None,
                temperature=_describe_temperature(reader, rotation),
                attends=attends,
            )
        )
    return layers


def _rotates(reader: Reader, number: int, kind: str) -> bool:
    """Tell whether a layer rotates its queries and keys."""
    rule = reader.family.get("rotates")
    if rule == "no_rope_layers":
        flags = reader.raw.get("no_rope_layers")
        every = reader.count("no_rope_layer_interval") or 4
        # The name misleads: 1 means that the layer rotates.
        return bool(flags[number]) if isinstance(flags, list) and number < len(flags) else (number + 1) % every != 0
    if rule == "sliding_attention":
        return "sliding" in kind or (reader.raw.get("model_type") in NO_WINDOW and not reader.raw.get("sliding_window"))
    return True


ROTARY_DIM = ("gptj", "codegen")
"""Architectures whose ``rotary_dim`` is how many channels rotate."""
NO_WINDOW = ("exaone4", "exaone_moe", "kolibri1")
"""Architectures that rotate in every layer where no window is set."""


def _describe_temperature(reader: Reader, rotation: Rotation | None) -> str:
    """Describe the factor that queries get by their position; empty where there is none."""
    raw = reader.raw
    if raw.get("attn_temperature_tuning") and rotation is None and reader.family.get("rotates") == "no_rope_layers":
        scale, floor = raw.get("attn_scale", 0.1), raw.get("floor_scale", 8192)
        return f"queries × (1 + {scale} ln(1 + ⌊(p + 1)/{floor}⌋)) at position p"
    beta = (raw.get("rope_parameters") or {}).get("llama_4_scaling_beta")
    if beta and rotation is not None:
        return f"queries × (1 + {beta} ln(1 + ⌊p/{rotation.original_length}⌋)) at position p"
    return ""


RULES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
"""Rules that transformers knows."""
SAME_RULE = {"su": "longrope", "mrope": "default", "axial": "default"}
"""Older names of rules, and names that say only how several axes share the channels."""
NUMBERS = {
    "beta_fast": ("beta_fast", 32.0),
    "beta_slow": ("beta_slow", 1.0),
    "low_freq_factor": ("low_frequency_factor", 1.0),
    "high_freq_factor": ("high_frequency_factor", 4.0),
}
"""Numbers of a rule: their key in the file -> their name here, and what counts where the file has none."""


def _make_rotation(reader: Reader, values: Values, kind: str | None) -> Rotation | None:
    """Make the rotation of one kind of layer from what the file says of it."""
    if "rests" in values:
        return None
    rule, where = _read_rule(reader, values)
    origin = {"rule": where}
    head_dim = _find_head_width(reader, kind, origin)
    share = _take(reader, values, "partial_rotary_factor", 1.0, origin, "channels")
    channels = _count_channels(reader, rule, head_dim, share, origin)
    base = _take(reader, values, "rope_theta", 10000.0, origin, "base")
    if channels < 2 or base <= 0:
        raise CheckpointError(
            f"{reader.source} makes {channels} channels rotate with base {base}; both must be positive, channels at "
            f"least 2 ({origin['channels']}, {origin['base']})"
        )
    original = _find_original_length(reader, values, rule, origin)
    if rule in SCALED and not original:
        raise CheckpointError(
            f"{reader.source} sets rope_type {rule!r}, but neither original_max_position_embeddings nor "
            "max_position_embeddings, without which the rule means nothing"
        )
    numbers = {ours: _take(reader, values, key, default, origin, ours) for key, (ours, default) in NUMBERS.items()}
    rotation = Rotation(
        head_dim=head_dim,
        channels=channels,
        base=base,
        rule=rule,  # type: ignore[arg-type]
        factor=_read_factor(reader, values, rule, original, origin),
        original_length=original,
        truncate=values.get("truncate", (True, ""))[0] is not False,
        factors=_read_factors(reader, values, "short_factor", channels),
        long_factors=_read_factors(reader, values, "long_factor", channels),
        share=share if rule == "proportional" else 1.0,
        pairing=_find_pairing(reader),
        direction=reader.family.get("direction", 1),
        origin=origin,
        **numbers,
    )
    amplitude, logit_factor = _compute_amplitudes(reader, values, rotation, origin)
    return dataclasses.replace(rotation, amplitude=amplitude, logit_factor=logit_factor)


def _read_rule(reader: Reader, values: Values) -> tuple[str, str]:
    """Return the rule, and where the file says it. Raises CheckpointError for one that is not known."""
    written, where = values.get("rope_type", ("default", "no rope_type is set"))
    rule = SAME_RULE.get(str(written), str(written))
    if rule not in RULES:
        raise CheckpointError(f"{reader.source} sets rope_type {rule!r} ({where}), which is not known")
    return rule, where


def _take(reader: Reader, values: Values, key: str, default: float, origin: dict[str, str], ours: str) -> float:
    """Return a number of the file, or the default, and note where it was found."""
    value, origin[ours] = values.get(key, (None, "default of the rule"))
    if value is None or (value == 0 and key.startswith("beta_")):  # transformers takes a beta of 0 for none
        return default
    return check_number(value, origin[ours], reader.source)


def _count_channels(reader: Reader, rule: str, head_dim: int, share: float, origin: dict[str, str]) -> int:
    """Return how many channels rotate: many architectures read the share only where a rule is set."""
    rotary = reader.raw.get("rotary_dim")
    if rotary is not None and reader.raw.get("model_type") in ROTARY_DIM:
        origin["channels"] = f"{reader.prefix}rotary_dim"
        return int(check_number(rotary, origin["channels"], reader.source))
    unread = reader.family and not reader.family.get("share_in_default") and rule == "default"
    return head_dim if unread or rule == "proportional" else int(head_dim * share)


def _read_factor(reader: Reader, values: Values, rule: str, original: int | None, origin: dict[str, str]) -> float:
    """Return the factor of a rule; YaRN and LongRoPE have one by the lengths where none is given."""
    claimed = reader.count("max_position_embeddings")
    if "factor" not in values and rule in ("yarn", "longrope") and original and claimed:
        origin["factor"] = "max_position_embeddings / original_max_position_embeddings"
        return claimed / original
    return _take(reader, values, "factor", 1.0, origin, "factor")


def _find_head_width(reader: Reader, kind: str | None, origin: dict[str, str]) -> int:
    """Return the channels of a head that rotation is about."""
    if (narrow := _find_width_of_kind(reader, kind)) is not None:
        origin["head_dim"] = f"{reader.prefix}per_layer_config"
        return narrow
    separate = reader.family.get("qk_rope_head_dim") if reader.family else reader.raw.get("qk_rope_head_dim")
    if separate and reader.family.get("head_dim", separate) == separate:
        value, origin["head_dim"] = reader.find("qk_rope_head_dim")
        return int(check_number(value, origin["head_dim"], reader.source))
    if kind == "full_attention" and reader.raw.get("global_head_dim"):
        origin["head_dim"] = f"{reader.prefix}global_head_dim"
        return int(check_number(reader.raw["global_head_dim"], "global_head_dim", reader.source))
    if (width := reader.count("head_dim", "attention_head_dim")) is not None:
        origin["head_dim"] = reader.find("head_dim", "attention_head_dim")[1]
        return width
    hidden = reader.count("hidden_size", "n_embd", "d_model", "dim")
    heads = reader.count("num_attention_heads", "n_head", "n_heads")
    if not hidden or not heads or hidden < heads:
        raise CheckpointError(f"{reader.source} says neither head_dim nor hidden_size and num_attention_heads")
    origin["head_dim"] = "hidden_size / num_attention_heads"
    return hidden // heads


def _find_width_of_kind(reader: Reader, kind: str | None) -> int | None:
    """Return the width of a head in layers of one kind, where the file lists what differs layer by layer."""
    listed = reader.raw.get("per_layer_config")
    if not isinstance(listed, dict):
        return None
    kinds = list_kinds(reader)
    for key, values in listed.items():
        inside = key.isdigit() and int(key) < len(kinds) and kind in (None, kinds[int(key)])
        if inside and isinstance(values, dict) and values.get("head_dim") is not None:
            return int(check_number(values["head_dim"], "per_layer_config.head_dim", reader.source))
    return None


def _find_original_length(reader: Reader, values: Values, rule: str, origin: dict[str, str]) -> int | None:
    """Return the length that the model was trained with before its rule came."""
    claimed = reader.count("max_position_embeddings") or 0
    outside = reader.raw.get("original_max_position_embeddings")
    if rule == "dynamic":
        origin["original_length"] = "max_position_embeddings"
        return claimed or None
    if rule not in SCALED:
        return None
    if outside is not None:  # where both stand, transformers takes the outer one
        origin["original_length"] = f"{reader.prefix}original_max_position_embeddings"
        return int(check_number(outside, origin["original_length"], reader.source))
    value, origin["original_length"] = values.get(
        "original_max_position_embeddings", (claimed, "max_position_embeddings")
    )
    return int(check_number(value, origin["original_length"], reader.source)) or None


def _read_factors(reader: Reader, values: Values, key: str, channels: int) -> tuple[float, ...]:
    """Return LongRoPE's factors, one for each pair."""
    listed, where = values.get(key, ((), ""))
    if not isinstance(listed, (list, tuple)):
        raise CheckpointError(f"{reader.source} sets {where} = {listed!r}, which is not a list of numbers")
    numbers = tuple(check_number(value, where, reader.source) for value in listed)
    pairs = (channels + 1) // 2
    if numbers and (len(numbers) != pairs or min(numbers) <= 0):
        raise CheckpointError(
            f"{reader.source} lists {len(numbers)} factors, but {pairs} pairs rotate, and all must be above 0 ({where})"
        )
    return numbers


def _find_pairing(reader: Reader) -> Any:
    key = reader.family.get("pairing_key")
    if key is not None and reader.raw.get(key) is False:
        return "halves"
    return reader.family.get("pairing", "halves")


def _compute_amplitudes(
    reader: Reader, values: Values, rotation: Rotation, origin: dict[str, str]
) -> tuple[float, float]:
    """Return the factor of cosines and sines, and the factor of the logits that some architectures add to it."""
    vllm = reader.program == "vllm" and rotation.rule == "yarn"
    # vLLM 0.25 passes attn_factor on, a factor beside its own, and not attention_factor (its pull request 48351).
    attention = values.get("attention_factor") if not vllm else None
    mscale, all_dim = (values.get(name, (0.0, ""))[0] or 0.0 for name in ("mscale", "mscale_all_dim"))
    logit_factor = 1.0
    if reader.family.get("logit_factor") and rotation.rule != "default" and all_dim:
        logit_factor = temperature_of(rotation.factor, all_dim) ** 2
    if rotation.rule == "longrope":
        if attention is not None:
            origin["amplitude"] = attention[1]
            return check_number(attention[0], attention[1], reader.source), logit_factor
        origin["amplitude"] = "√(1 + ln factor / ln original length)"
        length = rotation.original_length or 2
        return (
            math.sqrt(1 + math.log(rotation.factor) / math.log(length)) if rotation.factor > 1 else 1.0
        ), logit_factor
    if rotation.rule != "yarn":
        return 1.0, logit_factor
    if attention is not None:
        origin["amplitude"] = attention[1]
        return check_number(attention[0], attention[1], reader.source), logit_factor
    # vLLM takes mscale only for the architectures that DeepSeek's code is for (its issue 48621).
    if mscale and all_dim and (not vllm or reader.family.get("logit_factor")):
        origin["amplitude"] = f"{values['mscale'][1]}, mscale_all_dim"
        return temperature_of(rotation.factor, mscale) / temperature_of(rotation.factor, all_dim), logit_factor
    origin["amplitude"] = "0.1 ln(factor) + 1"
    beside, where = values.get("attn_factor", (1.0, "")) if vllm else (1.0, "")
    origin["amplitude"] += f", times {where}" if where else ""
    return temperature_of(rotation.factor, 1.0) * check_number(beside, where, reader.source), logit_factor
