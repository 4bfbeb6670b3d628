"""Find what is wrong with the positional encodings of a configuration, one sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clockhands.errors import ConfigError
from clockhands.model.config_fields import TransformerFields
from clockhands.model.config_types import SIDES_BY_ARCHITECTURE, Side
from clockhands.model.layer_schemes import find_layer_count_faults, find_layer_faults, list_layer_specs
from clockhands.model.position_config import PositionConfig
from clockhands.model.scheme_factory import SchemeFactory
from clockhands.model.scheme_summary import SchemeSummary
from clockhands.options import check_options, options_of
from clockhands.positions import TRANSFORMS
from clockhands.schemes import CATALOGUE, find_option_faults

__all__ = [
    "find_hook_faults",
    "find_position_faults",
    "find_position_faults_without_sizes",
    "find_scheme_faults",
    "find_transform_faults",
    "find_width_faults",
]


def find_position_faults(position: PositionConfig, side: Side) -> list[str]:
    """Return what is wrong with the positional encoding of one side, whatever the sizes of the model."""
    faults = [f"{side}: {fault}" for fault in find_option_faults(CATALOGUE, position.scheme, position.options)]
    faults += find_layer_faults(position, side)
    faults += find_transform_faults(position, side)
    if position.skip_every < 0 or position.skip_every == 1:
        faults.append(f"{side}.skip_every is {position.skip_every}; it must be 0 (no layer skips) or at least 2")
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


def find_width_faults(config: TransformerFields, side: Side) -> list[str]:
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


def find_scheme_faults(config: TransformerFields, side: Side, factory: SchemeFactory) -> list[str]:
    """Return why the scheme of a side refuses the sizes of the model, or cannot act on that side.

    ``factory``: that of the configuration, which builds the schemes for this check.
    """
    position = config.get_position_config(side)
    count_faults = find_layer_count_faults(position, side, config.count_layers(side))
    if count_faults:
        return count_faults
    try:
        summary = factory.summarise(config, side)
    except ConfigError as error:
        return [f"{side}: {sentence}" for sentence in error.faults]
    except (RuntimeError, TypeError, ValueError, ArithmeticError, MemoryError) as error:
        # From PyTorch, such as for a table that is too large, or from a scheme of another package.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return [f"{side}: {position.name} cannot be built with these sizes and options: {reason}"]
    specs = [spec for layer in list_layer_specs(position, config.count_layers(side)) for spec in layer]
    encoding_schemes = [spec.scheme for spec in specs if "encode" in CATALOGUE[spec.scheme].hooks()]
    if encoding_schemes:
        return [
            f"{side}.layers: {encoding_schemes[0]} adds vectors at the token embedding, before all layers; "
            f"give it as {side}.scheme"
        ]
    if config.latent_width is not None and side != "cross" and "rotate_values" in summary.hooks:
        return [
            f"{side}: values = true rotates values, and with latent_width ({config.latent_width}) they are made of a "
            f"compressed state that is not rotated; leave one of the two out"
        ]
    return find_hook_faults(summary, position, side, config.is_causal(side))


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
