"""Makes the rotation of one kind of layer from what a ``config.json`` of transformers says of it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.explanation.config_reader import Reader, Values, list_kinds
from clockhands.explanation.rotation import Rotation, check_number, temperature_of

__all__ = ["make_rotation"]

SCALED = ("llama3", "yarn", "longrope")
"""Rules that mean nothing without the trained length."""
ROTARY_DIM = ("gptj", "codegen")
"""Architectures whose ``rotary_dim`` is how many channels rotate."""
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


def make_rotation(reader: Reader, values: Values, kind: str | None) -> Rotation | None:
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
