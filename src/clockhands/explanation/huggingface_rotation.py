"""Makes the rotation of one kind of layer from a configuration that transformers has filled in."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, get_args

from clockhands.errors import CheckpointError
from clockhands.explanation.filled import Filled
from clockhands.explanation.numbers import check_count, check_number, check_numbers
from clockhands.explanation.rotation import Rotation, Rule, longrope_amplitude, scale_base, temperature_of
from clockhands.explanation.table import look_up

SCALED = ("llama3", "yarn", "longrope")
"""Rules that mean nothing without the trained length."""
SAME_RULE = {"su": "longrope", "mrope": "default"}
"""An older name of a rule, and one that says only how several axes share the channels."""
LABELS = {
    "deepseek_v4": {
        "sliding_attention": "main", "heavily_compressed_attention": "compress",
        "compressed_sparse_attention": "compress",
    },
}  # fmt: skip
"""Architectures whose tables of ``rope_parameters`` have other names than the kinds of layers that they are for."""
BASES = (
    "rope_theta|base|rotary_emb(edding)?_base|rope_(local_|embedding_)?base(_freq)?|rope_freq_constant|"
    "(local|global|compress|swa)_rope_theta|.*theta"
)
SHARES = "partial_rotary_factors?|rotary_(pct|dim|percent(age)?)|rope_pct|qk_rope_head_dim"
WIDTHS = "head_dim|kv_channels|attention_head_dim|qk_rope_head_dim|global_head_dim|.*head_dim"


class _Table:
    """The table of one kind of layer: its numbers, checked, with the key where the file has each."""

    def __init__(self, filled: Filled, kind: str) -> None:
        self.filled, self.kind = filled, kind
        self.label = LABELS.get(filled.config.model_type, {}).get(kind, kind)
        self.values = _pick_table(filled, self.label)
        self.origin: dict[str, str] = {}

    def find(self, value: Any, pattern: str) -> str:
        return self.filled.find(value, pattern, self.label)

    def number(self, key: str, default: float | None, ours: str, pattern: str = "", least: float = -math.inf) -> float:
        """Return a number, or the default where the table has none. Raises CheckpointError if there is neither."""
        value = self.values.get(key)
        if value is None or (value == 0 and key.startswith("beta_")):  # transformers takes a beta of 0 for none
            if default is None:
                rule = self.values.get("rope_type")
                raise CheckpointError(f"{self.filled.source} has the rule {rule!r} without {key!r}, which it needs")
            self.origin[ours] = "default of the rule"
            return default
        self.origin[ours] = self.find(value, pattern or key)
        return check_number(value, self.origin[ours], self.filled.source, least)


def _pick_table(filled: Filled, label: str) -> Mapping[str, Any]:
    """Return the numbers of one kind of layer. Raises CheckpointError where its architecture finds none in the file."""
    tables = filled.get("rope_parameters")
    if filled.config.model_type == "esm" or not tables:
        return {"rope_theta": filled.get("rope_theta", 10000.0)}
    by_kind = filled.facts.get("by_kind", not filled.known and label in tables)
    if by_kind and label not in tables:
        raise CheckpointError(
            f"{filled.source} has no table for {label!r} in rope_parameters, and {filled.model} reads one for each "
            "kind of layer"
        )
    config = filled.of_kind(label) if by_kind and filled.facts.get("by_kind") else filled.config

    def pick() -> Any:
        return config.rope_parameters[label] if by_kind else config.rope_parameters

    table = pick()
    if isinstance(table, Mapping) and table.get("rope_type", "default") != "default":
        try:  # as the functions of transformers do, which complete a table before all rules but the plain one
            config.standardize_rope_params()
        except Exception as fault:  # whatever a class of transformers says of a value
            raise CheckpointError(f"transformers cannot read the rule of {filled.source}: {fault}") from fault
        table = pick()
    if table is not None and not isinstance(table, Mapping):
        raise CheckpointError(f"{filled.source} sets rope_parameters.{label} = {table!r}, which is not a table")
    return {"rests": True} if table is None else table


def make_rotation(filled: Filled, kind: str) -> Rotation | None:
    """Make the rotation of one kind of layer; None where its table says that it does not rotate."""
    table = _Table(filled, kind)
    if "rests" in table.values:
        return None
    rule = _read_rule(table)
    head_dim = _find_head_width(table, rule)
    share, channels = _count_channels(table, rule, head_dim)
    base = table.number("rope_theta", 10000.0, "base", BASES)
    if channels < 2 or base <= 0:
        raise CheckpointError(
            f"{filled.source} makes {channels} channels rotate with base {base}; both must be positive, channels at "
            f"least 2 ({table.origin['channels']}, {table.origin['base']})"
        )
    vllm, old = filled.program == "vllm", filled.program == "transformers4"
    if filled.model == "chatglm" and filled.raw.get("rope_ratio") is not None:
        base *= check_number(filled.raw["rope_ratio"], "rope_ratio", filled.source)
        table.origin["base"] = "10,000 in the code, times rope_ratio; ChatGLM2-32K divides positions by it instead"
    if rule == "ntk":  # of GTE: a base times the factor, and all frequencies divided by factor^(2/d)
        base *= table.number("factor", None, "factor", least=1)
        table.origin["base"] += ", times factor"
    if rule == "dynamic" and (vllm or filled.facts.get("alpha")) and table.values.get("alpha"):
        alpha = table.number("alpha", None, "alpha", least=0)
        rule, base = "default", scale_base(base, alpha, channels)
        table.origin["base"] += f", times alpha^(d/(d − 2)), alpha = {alpha:g} ({table.origin.pop('alpha')})"
    original, low, high = _find_original_length(table, rule), 1.0, 4.0
    if vllm and rule == "yarn" and original and "mrope_section" in table.values:
        original *= 4  # its M-RoPE has a table for four times the length, of which the ramp is then made
        table.origin["original_length"] += ", times 4 in vLLM's M-RoPE"
    if rule == "llama3":
        low, high = (table.number(f"{end}_freq_factor", None, f"{end}_frequency_factor") for end in ("low", "high"))
    factor = _read_factor(table, rule, original)
    # transformers 5 asks the whole of rope_parameters, also where kinds of layers have tables of their own.
    rounds = (table.values if old else filled.get("rope_parameters") or {}).get("truncate") is not False
    rotation = Rotation(
        head_dim, channels, base, "linear" if rule == "ntk" else rule,  # type: ignore[arg-type]
        factor=factor ** (2 / channels) if rule == "ntk" else factor, original_length=original,
        beta_fast=table.number("beta_fast", 32.0, "beta_fast") if rule == "yarn" else 32.0,
        beta_slow=table.number("beta_slow", 1.0, "beta_slow") if rule == "yarn" else 1.0,
        extrapolation=table.number("extrapolation_factor", 1.0, "extrapolation") if vllm and rule == "yarn" else 1.0,
        truncate=rule != "yarn" or rounds, low_frequency_factor=low, high_frequency_factor=high,
        factors=_read_factors(table, rule, "short_factor", channels) or _list_orders(table, rule, base, channels),
        long_factors=_read_factors(table, rule, "long_factor", channels),
        share=share if rule == "proportional" else 1.0, direction=filled.facts.get("direction", 1),
        pairing="halves" if filled.get(filled.facts.get("pairing_key", ""), True) is False else filled.facts["pairing"],
        origin=table.origin,
    )  # fmt: skip
    amplitude, logit_factor = _compute_amplitudes(table, rotation)
    both = [table.values.get(f"{length}_mscale") for length in ("short", "long")]
    own = filled.config.model_type == "phimoe" or not filled.known  # Phi-3-small
    if own and rule == "longrope" and None not in both and not vllm:
        # Its module takes these for the amplitude; in transformers 5 it keeps the short factors at every length.
        amplitude = table.number("short_mscale", None, "amplitude")
        table.origin["amplitude"] += "" if both[0] == both[1] else f"; beyond the original length {both[1]}"
        rotation = rotation if old or not filled.known else dataclasses.replace(rotation, long_factors=())
    return dataclasses.replace(rotation, amplitude=amplitude, logit_factor=logit_factor)


def _read_rule(table: _Table) -> str:
    """Return the rule. Raises CheckpointError for one that is not known, or that the architecture does not have."""
    written = table.values.get("rope_type", "default")
    rule = SAME_RULE.get(str(written), str(written))
    where = table.find(written, "(rope_)?type")
    table.origin["rule"] = "no rope_type is set" if rule == "default" and where.startswith("default") else where
    if rule == "ntk" and not table.filled.known and table.values.get("mixed_b") is None:
        return rule
    known = rule in get_args(Rule)
    if not known or (rule != "default" and table.filled.facts.get("plain")):
        fault = f"{table.filled.model} does not have" if known else "is not known"
        raise CheckpointError(f"{table.filled.source} sets rope_type {rule!r} ({where}), which {fault}")
    return rule


def _find_head_width(table: _Table, rule: str) -> int:
    """Return the channels of a head that rotation is about."""
    filled = table.filled
    own = filled.facts.get("by_layer") or (filled.facts.get("by_kind") and rule != "default")
    config = filled.of_kind(table.label) if own else filled.config
    sizes = {key: look_up(config, key) for key in ("head_dim", "hidden_size", "num_attention_heads")}
    if sizes["head_dim"] is not None and sizes["head_dim"] != 0:
        table.origin["head_dim"] = filled.find(sizes["head_dim"], WIDTHS)
        width = check_count(sizes["head_dim"], table.origin["head_dim"], filled.source)
    else:
        table.origin["head_dim"] = "hidden_size / num_attention_heads"
        hidden, heads = (check_count(sizes[key], f"{filled.prefix}{key}", filled.source) for key in list(sizes)[1:])
        width = hidden // heads
    if table.origin["head_dim"].startswith("default") and "head_dim" not in type(filled.config).__annotations__:
        table.origin["head_dim"] = "hidden_size / num_attention_heads"
    return width


def _count_channels(table: _Table, rule: str, head_dim: int) -> tuple[float, int]:
    """Return the share of the channels that rotate, and how many: many architectures read it only under a rule."""
    filled = table.filled
    if filled.config.model_type in ("gptj", "codegen"):
        rotary = filled.get("rotary_dim")
        table.origin["channels"] = filled.find(rotary, "rotary_dim") if rotary else "all of n_embd"
        return 1.0, check_count(rotary or filled.get("n_embd"), table.origin["channels"], filled.source)
    usual = filled.facts.get("share", 1.0) if rule == "default" else 1.0
    share = table.number("partial_rotary_factor", usual, "channels", SHARES, least=0)
    if filled.program == "transformers4" and "share" not in filled.facts:
        written = check_number(filled.raw.get("partial_rotary_factor") or share, "partial_rotary_factor", filled.source)
        if written != 1:
            raise CheckpointError(
                f"{filled.source} sets {filled.prefix}partial_rotary_factor = {written:g}, by which transformers 4 "
                f"makes a table for {int(head_dim * written)} channels; attention there multiplies all {head_dim} by "
                "it, and fails"
            )
    if rule == "proportional" or (rule == "default" and "share" not in filled.facts):
        return share, head_dim
    if table.origin["channels"].startswith("default of") and filled.raw.get("rotary_dim") is not None:
        table.origin["channels"] = f"{filled.prefix}rotary_dim"
    return share, int(head_dim * share)


def _read_factor(table: _Table, rule: str, original: int | None) -> float:
    """Return the factor of a rule; YaRN and LongRoPE have one by the lengths where none is given."""
    claimed = table.filled.count("max_position_embeddings")
    if table.values.get("factor") is None and rule in ("yarn", "longrope") and original and claimed:
        table.origin["factor"] = "max_position_embeddings / original_max_position_embeddings"
        return claimed / original
    if rule == "default":
        return 1.0
    return table.number("factor", 1.0 if rule == "proportional" else None, "factor")


def _find_original_length(table: _Table, rule: str) -> int | None:
    """Return the length that the model was trained with before its rule came."""
    filled = table.filled
    if rule == "dynamic":
        table.origin["original_length"] = "max_position_embeddings"
        return filled.count("max_position_embeddings")
    if rule not in SCALED:
        return None
    value = table.values.get("original_max_position_embeddings")
    origin = table.find(value, "original_max_position_embeddings")
    if origin.startswith("default") and value == filled.get("max_position_embeddings"):
        origin = "max_position_embeddings"
    if value is None or (not filled.known and filled.find(value, ".*(max_pos|length|n_pos).*").startswith("def")):
        raise CheckpointError(
            f"{filled.source} sets rope_type {rule!r}, but neither original_max_position_embeddings nor "
            "max_position_embeddings, without which the rule means nothing"
        )
    table.origin["original_length"] = origin
    return check_count(value, origin, filled.source)


def _read_factors(table: _Table, rule: str, key: str, channels: int) -> tuple[float, ...]:
    """Return LongRoPE's factors, one for each pair."""
    if rule != "longrope":
        return ()
    where = f"{table.filled.prefix}rope_parameters.{key}"
    numbers = check_numbers(table.values.get(key), where, table.filled.source)
    pairs = (channels + 1) // 2
    if numbers and (len(numbers) != pairs or min(numbers) <= 0):
        raise CheckpointError(
            f"{table.filled.source} lists {len(numbers)} factors, but {pairs} pairs rotate, and all must be above 0 "
            f"({where})"
        )
    return numbers


def _list_orders(table: _Table, rule: str, base: float, channels: int) -> tuple[float, ...]:
    """Return by what ERNIE 4.5 VL changes the frequencies of pairs: those of its two axes of a picture alternate."""
    if table.filled.config.model_type != "ernie4_5_vl_moe_text" or rule != "default":
        return ()
    sections = table.values.get("mrope_section") or [22, 22, 20]
    pairs, last = channels // 2, check_count(sections[2], "mrope_section", table.filled.source)
    order = [*range(0, pairs - last, 2), *range(1, pairs - last, 2), *range(pairs - last, pairs)]
    table.origin["factors"] = "the order of the axes"
    return tuple(base ** (2 * (place - pair) / channels) for pair, place in enumerate(order))


def _compute_amplitudes(table: _Table, rotation: Rotation) -> tuple[float, float]:
    """Return the factor of cosines and sines, and the factor of the logits that some architectures add to it."""
    origin, rule, factor, filled = table.origin, rotation.rule, rotation.factor, table.filled
    deepseek = bool(filled.facts.get("logit_factor"))
    vllm = filled.program == "vllm"
    mscale, all_dim = (table.number(name, 0.0, name) for name in ("mscale", "mscale_all_dim"))
    slope = temperature_of(factor, all_dim) if deepseek and rule != "default" and all_dim else 1.0
    logit_factor = slope * slope
    if rule not in ("yarn", "longrope"):
        return 1.0, logit_factor
    # vLLM 0.25 takes no attention_factor: of LongRoPE short_mscale and long_mscale, the long one where it serves texts
    # beyond the original length; of YaRN attn_factor, beside its own factor (its pull request 48351).
    if vllm and rule == "longrope":
        length, claimed = max(rotation.original_length or 2, 2), filled.count("max_position_embeddings") or 0
        key = "long_mscale" if claimed > length else "short_mscale"
        if table.values.get(key) is not None:
            return table.number(key, None, "amplitude"), logit_factor
        origin["amplitude"] = "√(1 + ln(max_position_embeddings / original length) / ln original length)"
        return longrope_amplitude(claimed / length, length), logit_factor
    if table.values.get("attention_factor") is not None and not vllm:
        return table.number("attention_factor", None, "amplitude"), logit_factor
    if rule == "longrope":
        origin["amplitude"] = "√(1 + ln factor / ln original length)"
        return longrope_amplitude(factor, rotation.original_length or 2), logit_factor
    # vLLM takes mscale only for the architectures that DeepSeek's code is for (its issue 48621).
    if mscale and all_dim and (not vllm or deepseek):
        origin["amplitude"] = f"{origin['mscale']}, mscale_all_dim"
        below = temperature_of(factor, all_dim)
        return temperature_of(factor, mscale) / below if below else math.inf, logit_factor
    beside = table.number("attn_factor", 1.0, "beside") if vllm else 1.0
    is_set = vllm and table.values.get("attn_factor") is not None
    if vllm and table.values.get("apply_yarn_scaling", True) is False and "mrope_section" not in table.values:
        origin["amplitude"] = "apply_yarn_scaling is false" + (f"; {origin['beside']}" if is_set else "")
        return beside, logit_factor
    origin["amplitude"] = "0.1 ln(factor) + 1" + (f", times {origin['beside']}" if is_set else "")
    return temperature_of(factor, 1.0) * beside, logit_factor
