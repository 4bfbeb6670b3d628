"""Find what is wrong with a configuration, one sentence each, and not the first fault alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args, get_origin

from clockhands.errors import Fault, show_value
from clockhands.model.config_fields import TransformerFields
from clockhands.model.config_types import LARGEST_HEAD_WIDTH, LARGEST_NUM_HEADS, Side, StackSide
from clockhands.model.layer_option_faults import find_layer_option_faults
from clockhands.model.position_config import PositionConfig
from clockhands.model.position_faults import find_position_faults, find_scheme_faults, find_width_faults
from clockhands.model.scheme_factory import SchemeFactory
from clockhands.options import check_value, options_of

__all__ = [
    "find_faults",
    "find_size_faults",
    "find_value_faults",
    "find_vocabulary_faults",
]


def find_faults(config: TransformerFields, factory: SchemeFactory) -> list[str]:
    """Return what is wrong with a configuration, one sentence each; empty if nothing is.

    Values of a wrong type or range are returned alone. Whether the model's sizes suit a scheme is only checked if they
    suit each other. ``factory``: that of the configuration, which builds the schemes for this check.
    """
    faults = find_value_faults(config, "")
    for side in get_args(Side):
        faults += find_value_faults(config.get_position_config(side), f"{side}.")
    if faults:
        return faults
    size_faults = find_size_faults(config)
    faults = [*size_faults, *find_vocabulary_faults(config)]
    for side in config.sides:
        side_faults = find_position_faults(config.get_position_config(side), side) + find_width_faults(config, side)
        if not side_faults and not size_faults:
            # To check this the scheme is built, which needs valid options and sizes.
            side_faults = find_scheme_faults(config, side, factory)
        faults += side_faults
    return faults


def find_value_faults(config: TransformerFields | PositionConfig, prefix: str) -> list[str]:
    """Return which fields of a configuration have values of a wrong type or out of range, one sentence each.

    ``prefix`` stands before the name of a field in messages.
    """
    faults = []
    for name, option in options_of(type(config)).items():
        value = getattr(config, name)
        if get_origin(option.type) is not Mapping:
            faults += check_value(f"{prefix}{name}", value, option.type)
        elif not isinstance(value, Mapping):
            # The entries of a table are checked by find_position_faults, which knows the scheme that they are for.
            faults.append(f"{prefix}{name} is {show_value(value)}, but must be a table")
    return faults


def find_size_faults(config: TransformerFields) -> list[Fault]:
    """Return which sizes contradict each other, and why layers cannot be parallel.

    Each is a ``Fault`` that names every field on which it depends: a caller that has put another value in the place of
    one that is not valid leaves out the faults that follow from it (``runs.recipe.validation``).
    """
    faults = []
    head_fields = ("d_model", "num_heads", "head_dim")
    if config.resolved_head_dim > LARGEST_HEAD_WIDTH:
        sentence = f"d_model / num_heads is {config.resolved_head_dim:,}, but must be at most {LARGEST_HEAD_WIDTH:,}"
        faults.append(Fault(f"{sentence}; raise num_heads, or lower d_model", *head_fields))
    if config.head_dim is None and config.d_model % config.num_heads:
        nearest = _find_nearest_divisor(config.d_model, config.num_heads)
        sentence = f"num_heads is {config.num_heads}, which does not divide d_model {config.d_model}"
        faults.append(Fault(f"{sentence}; take {nearest}, or set head_dim", *head_fields))
    if config.num_heads % config.resolved_num_kv_heads:
        nearest = _find_nearest_divisor(config.num_heads, config.resolved_num_kv_heads)
        sentence = f"num_kv_heads is {config.num_kv_heads}, which does not divide num_heads {config.num_heads}"
        faults.append(Fault(f"{sentence}; take {nearest}", "num_kv_heads", "num_heads"))
    if config.parallel and config.norm != "pre":
        sentence = f"parallel attention and feed-forward need norm = 'pre'; norm is {config.norm!r}"
        faults.append(Fault(sentence, "parallel", "norm"))
    if config.parallel and config.architecture == "encoder-decoder":
        sentence = "parallel attention and feed-forward have no place for cross-attention; set parallel = false"
        faults.append(Fault(sentence, "parallel", "kind"))
    return [*faults, *find_layer_option_faults(config)]


def _find_nearest_divisor(size: int, wanted: int) -> int:
    """Return the divisor of a size that is nearest to the number of heads that somebody wanted."""
    divisors = (n for n in range(1, min(size, LARGEST_NUM_HEADS) + 1) if size % n == 0)
    return min(divisors, key=lambda n: abs(n - wanted))


def find_vocabulary_faults(config: TransformerFields) -> list[Fault]:
    """Return which matrices cannot be tied because their shapes differ.

    Each is a ``Fault`` that names the fields on which it depends; settings of a positional encoding are not among them.
    """
    faults = []
    source, target = config.get_vocabulary_size("encoder"), config.vocab_size
    reads_source = config.architecture == "encoder-decoder"
    if reads_source and config.tying == "three-way" and source != target:
        sizes = f"{source} (source) and {target} (target) tokens"
        sentence = f"tying is 'three-way', but the vocabularies have {sizes}; set tying = 'target'"
        faults.append(Fault(sentence, "tying", "kind", "vocab_size", "source_vocab_size"))
    for side in config.stack_sides:
        untied = side == "encoder" and reads_source and config.tying != "three-way"
        if not untied and config.tying != "none":
            faults += _find_tying_faults(config, side)
    return faults


def _find_tying_faults(config: TransformerFields, side: StackSide) -> list[Fault]:
    """Return why the token embedding of a side cannot be tied to the output matrix: ``concatenate`` makes it narrower.

    A width that leaves no channels to the tokens is no fault here (``find_width_faults``).
    """
    width = config.get_position_config(side).compute_token_width(config.d_model)
    if width == config.d_model or width <= 0:
        return []
    sentence = (
        f"tying is {config.tying!r}, but {side}.combine = 'concatenate' leaves {width} channels to the tokens "
        f"and the output needs {config.d_model}; set tying = 'none', or {side}.combine = 'project'"
    )
    return [Fault(sentence, "tying", "kind", "d_model")]
