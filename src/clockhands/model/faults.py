"""Find what is wrong with a configuration, one sentence each, and not the first fault alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args, get_origin

from clockhands.errors import ConfigError, Fault, show_value
from clockhands.model.config_layers import find_layer_option_faults
from clockhands.model.config_types import (
    LARGEST_HEAD_WIDTH,
    LARGEST_NUM_HEADS,
    SIDES_BY_ARCHITECTURE,
    Side,
    StackSide,
)
from clockhands.model.layer_schemes import find_layer_count_faults, find_layer_faults, list_layer_specs
from clockhands.model.position_config import PositionConfig
from clockhands.model.scheme_summary import SchemeSummary
from clockhands.options import check_options, check_value, options_of
from clockhands.positions import TRANSFORMS
from clockhands.schemes import CATALOGUE, find_option_faults

if TYPE_CHECKING:
    from clockhands.model.config import TransformerConfig

__all__ = [
    "find_faults",
    "find_hook_faults",
    "find_position_faults",
    "find_position_faults_without_sizes",
    "find_scheme_faults",
    "find_size_faults",
    "find_transform_faults",
    "find_value_faults",
    "find_vocabulary_faults",
    "find_width_faults",
]


def find_faults(config: TransformerConfig) -> list[str]:
    """Return what is wrong with a configuration, one sentence each; empty if nothing is.

    Values of a wrong type or range are returned alone. Whether the model's sizes suit a scheme is only checked if they
    suit each other.
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
            side_faults = find_scheme_faults(config, side)
        faults += side_faults
    return faults


def find_position_faults_without_sizes(table: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the positional encodings in a table of which other values are not valid.

    ``values``: the valid values of the table, among them a ``PositionConfig`` for each side that has a valid one. What
    depends on sizes is not checked.
    """
    if "kind" in table and "kind" not in values:
        return []
    sides = SIDES_BY_ARCHITECTURE[values.get("kind", "encoder-decoder")]
    return [fault for side in sides if side in values for fault in find_position_faults(values[side], side)]


def find_value_faults(config: TransformerConfig | PositionConfig, prefix: str) -> list[str]:
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


def find_size_faults(config: TransformerConfig) -> list[Fault]:
    """Return which sizes contradict each other, and why layers cannot be parallel.

    Each is a ``Fault`` that names every field on which it depends.
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


def find_vocabulary_faults(config: TransformerConfig) -> list[Fault]:
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


def _find_tying_faults(config: TransformerConfig, side: StackSide) -> list[Fault]:
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


def find_position_faults(position: PositionConfig, side: Side) -> list[str]:
    """Return what is wrong with the positional encoding of one side, whatever the sizes of the model."""
    faults = [f"{side}: {fault}" for fault in find_option_faults(CATALOGUE, position.scheme, position.options)]
    faults += find_layer_faults(position, side)
    faults += find_transform_faults(position, side)
    if position.skip_every < 0 or position.skip_every == 1:
        faults.append(f"{side}.skip_every is {position.skip_every}; it must be 0 (no layer skips) or at least 2")
    return faults


def find_scheme_faults(config: TransformerConfig, side: Side) -> list[str]:
    """Return why the scheme of a side refuses the sizes of the model, or cannot act on that side."""
    position = config.get_position_config(side)
    count_faults = find_layer_count_faults(position, side, config.count_layers(side))
    if count_faults:
        return count_faults
    try:
        summary = config.summarise_schemes(side)
        for specs in list_layer_specs(position, config.count_layers(side)):
            encoding_schemes = [spec.scheme for spec in specs if "encode" in CATALOGUE[spec.scheme].hooks()]
            if encoding_schemes:
                return [
                    f"{side}.layers: {encoding_schemes[0]} adds vectors at the token embedding, before all layers; "
                    f"give it as {side}.scheme"
                ]
    except ConfigError as error:
        return [f"{side}: {sentence}" for sentence in error.faults]
    except (RuntimeError, TypeError, ValueError, ArithmeticError, MemoryError) as error:
        # From PyTorch, such as for a table that is too large, or from a scheme of another package.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return [f"{side}: {position.name} cannot be built with these sizes and options: {reason}"]
    return find_hook_faults(summary, position, side, config.is_causal(side))


def find_width_faults(config: TransformerConfig, side: Side) -> list[str]:
    """Return what is wrong with the width of an encoding, d_p: missing, too large or unused."""
    position, d_model = config.get_position_config(side), config.d_model
    if position.combine == "add":
        unused = f"{side}.width is {position.width}, but combine = 'add' takes no width"
        return [] if position.width is None else [unused]
    if position.width is None:
        return [f"{side}.combine is {position.combine!r} and needs {side}.width, the d_p channels of the encoding"]
    if position.combine == "concatenate" and position.width >= d_model:
        return [
            f"{side}.width (d_p) is {position.width}, but d_model is {d_model}; d_p must leave channels to the tokens"
        ]
    return []


def find_transform_faults(position: PositionConfig, side: Side) -> list[str]:
    """Return what is wrong with a transform: its name, its options, or that the side takes none."""
    if position.transform is None:
        unused = f"{side}.transform_options is set but {side}.transform is not: set it or remove the options"
        return [unused] if position.transform_options else []
    if side == "cross":
        return ["cross.transform is set, but cross-attention reads positions as they were counted: remove it"]
    if position.transform not in TRANSFORMS:
        return [f"{side}: {TRANSFORMS.describe_unknown_name(position.transform)}"]
    options = options_of(TRANSFORMS[position.transform])
    _, faults = check_options(
        position.transform_options, options, position.transform, prefix=f"{side}.transform_options."
    )
    if faults:
        return faults
    try:
        position.make_transform()
    except ConfigError as error:
        return [f"{side}: {sentence}" for sentence in error.faults]
    return []


def find_hook_faults(summary: SchemeSummary, position: PositionConfig, side: Side, causal: bool) -> list[str]:
    """Return why a scheme cannot act on a side: hooks that are not called there, or a mask that is missing."""
    faults = []
    attention = "cross-attention" if side == "cross" else f"the {side}"
    if not causal and summary.declares.causal_only:
        remedy = "choose another scheme" + (", or set causal_encoder = true" if side == "encoder" else "")
        faults.append(
            f"{side}: {position.name} is defined only under a causal mask, and {attention} has none; {remedy}"
        )
    if side == "cross" and summary.hooks & {"encode", "locate"}:
        faults.append(
            f"cross: {position.name} acts at the token embedding or computes positions from a layer's input, and "
            "cross-attention has neither; choose another scheme"
        )
    if "encode" not in summary.hooks and (position.combine != "add" or position.every_layer):
        setting = "every_layer = true" if position.every_layer else f"combine = {position.combine!r}"
        faults.append(
            f"{side}: {setting} needs a scheme that adds vectors at the token embedding; {position.name} adds none"
        )
    if position.every_layer and position.combine != "add":
        faults.append(f"{side}.every_layer adds the encoding again, so combine must be 'add', not {position.combine!r}")
    transform = position.make_transform()
    if transform is not None and transform.real_valued and not summary.declares.real_valued:
        faults.append(
            f"{side}: {position.transform} gives real numbers, and {position.name} takes integer positions; choose "
            f"another transform, or a scheme that declares real_valued"
        )
    return faults
