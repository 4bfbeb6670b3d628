"""Everything that can be wrong with a configuration, as sentences; all are collected before anything is raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin

from clockhands.errors import ConfigError, Fault, show_value
from clockhands.model.config import LARGEST_HEAD, SIDES_OF, Position, Side, TransformerConfig
from clockhands.model.outline import Outline
from clockhands.options import check_options, check_value, options_of
from clockhands.positions import TRANSFORMS
from clockhands.schemes import CATALOGUE
from clockhands.schemes import faults as option_faults

__all__ = [
    "faults",
    "hook_faults",
    "position_faults",
    "position_faults_without_sizes",
    "scheme_faults",
    "size_faults",
    "transform_faults",
    "value_faults",
    "vocabulary_faults",
    "width_faults",
]


def faults(config: TransformerConfig) -> list[str]:
    """Return everything wrong with a configuration, one sentence each; empty if nothing is."""
    wrong = value_faults(config, "")
    for side in get_args(Side):
        wrong += value_faults(config.position(side), f"{side}.")
    if wrong:
        return wrong
    in_sizes = size_faults(config)
    wrong = in_sizes + vocabulary_faults(config)
    for side in config.sides:
        in_side = position_faults(config.position(side), side) + width_faults(config, side)
        if not in_side and not in_sizes:
            # To build the scheme, its options and the sizes must be valid.
            in_side = scheme_faults(config, side)
        wrong += in_side
    return wrong


def position_faults_without_sizes(table: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Check the positional encodings even though other values are invalid; checks that need sizes are skipped.

    ``values`` are those of the table that are valid, positional encodings among them.
    """
    if "kind" in table and "kind" not in values:
        return []
    sides = SIDES_OF[values.get("kind", "encoder-decoder")]
    return [fault for side in sides if side in values for fault in position_faults(values[side], side)]


def value_faults(table: Any, prefix: str) -> list[str]:
    """Return the fields of a dataclass whose values are of a wrong type or out of range."""
    wrong = []
    for name, option in options_of(type(table)).items():
        value = getattr(table, name)
        if get_origin(option.type) is not Mapping:
            wrong += check_value(f"{prefix}{name}", value, option.type)
        elif not isinstance(value, Mapping):
            # What such a table holds is judged with the options that it is for.
            wrong.append(f"{prefix}{name} is {show_value(value)}, but must be a table")
    return wrong


def size_faults(config: TransformerConfig) -> list[str]:
    """Return which sizes do not go together: heads that do not divide the width, layers that cannot be parallel.

    Each is a ``Fault`` that names every field on which it depends.
    """
    wrong: list[str] = []
    heads = ("d_model", "num_heads", "head_dim")
    if config.d_head > LARGEST_HEAD:
        sentence = f"d_model / num_heads is {config.d_head:,}; the largest head that is taken is {LARGEST_HEAD:,}"
        wrong.append(Fault(sentence, *heads))
    if config.head_dim is None and config.d_model % config.num_heads:
        divisors = [n for n in range(1, min(config.d_model, 2**16) + 1) if config.d_model % n == 0]
        best = min(divisors, key=lambda n: abs(n - config.num_heads))
        sentence = f"num_heads is {config.num_heads}, which does not divide d_model {config.d_model}"
        wrong.append(Fault(f"{sentence}; take {best}, or set head_dim", *heads))
    if config.num_heads % config.kv_heads:
        sentence = f"num_kv_heads is {config.num_kv_heads}, which does not divide num_heads {config.num_heads}"
        wrong.append(Fault(sentence, "num_kv_heads", "num_heads"))
    if config.parallel and config.norm != "pre":
        sentence = "parallel attention and feed-forward need norm = 'pre'; norm is 'post'"
        wrong.append(Fault(sentence, "parallel", "norm"))
    if config.parallel and config.kind == "encoder-decoder":
        sentence = "parallel attention and feed-forward have no place for cross-attention; set parallel = false"
        wrong.append(Fault(sentence, "parallel", "kind"))
    return wrong


def vocabulary_faults(config: TransformerConfig) -> list[str]:
    """Return which tied matrices cannot be one because their shapes differ, each as a ``Fault`` with its fields."""
    wrong: list[str] = []
    source, target = config.vocabulary("encoder"), config.vocab_size
    pair = config.kind == "encoder-decoder"
    if pair and config.tying == "three-way" and source != target:
        sizes = f"{source} (source) and {target} (target) tokens"
        sentence = f"tying is 'three-way', but the vocabularies have {sizes}; set tying = 'target'"
        wrong.append(Fault(sentence, "tying", "kind", "vocab_size", "source_vocab_size"))
    for side in config.sides:
        own_matrix = side == "encoder" and pair and config.tying != "three-way"
        if side != "cross" and not own_matrix and config.tying != "none":
            wrong += _width_faults_of_tying(config, side)
    return wrong


def _width_faults_of_tying(config: TransformerConfig, side: Side) -> list[str]:
    width = config.position(side).token_width(config.d_model)
    if width == config.d_model or width <= 0:
        return []
    sentence = (
        f"tying is {config.tying!r}, but {side}.combine = 'concatenate' leaves {width} channels to the tokens "
        f"and the output needs {config.d_model}; set tying = 'none', or {side}.combine = 'project'"
    )
    return [Fault(sentence, "tying", "kind", "d_model")]


def position_faults(position: Position, side: Side) -> list[str]:
    """Return what is wrong with how one side gets position, whatever the sizes of the model."""
    wrong = [f"{side}: {fault}" for fault in option_faults(CATALOGUE, position.scheme, position.options)]
    wrong += transform_faults(position, side)
    if position.skip_every < 0 or position.skip_every == 1:
        wrong.append(f"{side}.skip_every is {position.skip_every}; it must be 0 (no layer skips) or at least 2")
    return wrong


def scheme_faults(config: TransformerConfig, side: Side) -> list[str]:
    """Return why the scheme of a side refuses the sizes of the model, or cannot act on that side."""
    position = config.position(side)
    try:
        outline = config.outline(side)
    except ConfigError as fault:
        return [f"{side}: {sentence}" for sentence in fault.faults]
    except (RuntimeError, TypeError, ValueError, ArithmeticError, MemoryError) as fault:
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        return [f"{side}: {position.scheme} cannot be built with these sizes and options: {reason}"]
    return hook_faults(outline, position, side, config.causal(side))


def width_faults(config: TransformerConfig, side: Side) -> list[str]:
    """Return what is wrong with d_p: missing, too large or without use."""
    position, d_model = config.position(side), config.d_model
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


def transform_faults(position: Position, side: Side) -> list[str]:
    """Return what is wrong with a transform: unknown, where none can be, or with faulty options."""
    if position.transform is None:
        unused = f"{side}.transform_options is set but {side}.transform is not: set it or remove the options"
        return [unused] if position.transform_options else []
    if side == "cross":
        return ["cross.transform is set, but cross-attention reads positions as they were counted: remove it"]
    if position.transform not in TRANSFORMS:
        return [f"{side}: {TRANSFORMS.unknown(position.transform)}"]
    options = options_of(TRANSFORMS[position.transform])
    _, wrong = check_options(
        position.transform_options, options, position.transform, prefix=f"{side}.transform_options."
    )
    if wrong:
        return wrong
    try:
        position.make_transform()
    except ConfigError as fault:
        return [f"{side}: {sentence}" for sentence in fault.faults]
    return []


def hook_faults(outline: Outline, position: Position, side: Side, causal: bool) -> list[str]:
    """Return why a scheme cannot act on this side, for want of the places or the mask that it needs."""
    wrong = []
    attention = "cross-attention" if side == "cross" else f"the {side}"
    if not causal and outline.declares.causal_only:
        wrong.append(f"{side}: {position.scheme} is defined only under a causal mask, and {attention} has none")
    if side == "cross" and outline.hooks & {"encode", "locate"}:
        wrong.append(
            f"cross: {position.scheme} enters at the token embedding or reads the layer's input to place tokens, which "
            "cross-attention cannot; choose another scheme"
        )
    if "encode" not in outline.hooks and (position.combine != "add" or position.every_layer):
        setting = "every_layer = true" if position.every_layer else f"combine = {position.combine!r}"
        wrong.append(
            f"{side}: {setting} needs a scheme that adds vectors at the token embedding; {position.scheme} adds none"
        )
    if position.every_layer and position.combine != "add":
        wrong.append(f"{side}.every_layer adds the encoding again, so combine must be 'add', not {position.combine!r}")
    transform = position.make_transform()
    if transform is not None and transform.real_valued and not outline.declares.real_valued:
        wrong.append(f"{side}: {position.transform} gives real numbers, and {position.scheme} takes whole positions")
    return wrong
