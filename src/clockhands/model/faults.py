"""Everything that can be wrong with a configuration, as sentences; all are collected before anything is raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from clockhands.errors import ConfigError, shown, unknown
from clockhands.model.config import DROPOUT_PLACES, Position, Side, TransformerConfig
from clockhands.model.size import LIMITS, outline
from clockhands.positions import TRANSFORMS
from clockhands.schemes import CATALOGUE, Scheme
from clockhands.schemes import faults as scheme_faults
from clockhands.schemes.catalogue import misfits

POSITIVE = ("vocab_size", "source_vocab_size", "d_model", "num_heads", "num_kv_heads", "head_dim", "d_ff")


def faults(config: TransformerConfig) -> list[str]:
    """Everything wrong with a configuration, one sentence each; empty if nothing is."""
    wrong = table_faults(vars(config))
    if wrong:
        return wrong
    sizes = size_faults(config)
    wrong = sizes + tying_faults(config)
    for side in config.sides:
        wrong += position_faults(config, side, sizes_stand=not sizes)
    return wrong


def table_faults(table: Mapping[str, Any]) -> list[str]:
    """Values of the wrong type, in the model's fields and in those of the positions of its sides."""
    wrong = type_faults(TransformerConfig, table, "")
    for side in get_args(Side):
        if isinstance(table.get(side), Position):
            wrong += type_faults(Position, vars(table[side]), f"{side}.")
    return wrong


def type_faults(described: type, table: Mapping[str, Any], prefix: str) -> list[str]:
    """Values that are not of their field's type."""
    wrong = []
    for name, kind in get_type_hints(described).items():
        if name not in table:
            continue
        is_table = get_origin(kind) is Mapping
        if is_table and not isinstance(table[name], Mapping):
            wrong.append(f"{prefix}{name} is {shown(table[name])}, but must be a table")
        elif not is_table:
            wrong += misfits(f"{prefix}{name}", table[name], kind)
    return wrong


def size_faults(config: TransformerConfig) -> list[str]:
    """Sizes that are not positive, heads that do not divide, rates and places out of range."""
    wrong = [
        f"{name} is {value}; it must be at least 1"
        for name in POSITIVE
        if (value := getattr(config, name)) is not None and value < 1
    ]
    wrong += [
        f"{name} is {value}; it must be at least 0"
        for name in ("encoder_layers", "decoder_layers")
        if (value := getattr(config, name)) < 0
    ]
    wrong += [
        f"{name} is {value:,}; the largest that is taken is {largest:,}"
        for name, largest in LIMITS.items()
        if (value := getattr(config, name)) is not None and value > largest
    ]
    if wrong:
        return wrong
    if config.d_head > LIMITS["head_dim"]:
        wrong.append(
            f"d_model / num_heads is {config.d_head:,}; the largest head that is taken is {LIMITS['head_dim']:,}"
        )
    if config.head_dim is None and config.d_model % config.num_heads:
        near = [n for n in range(1, min(config.d_model, LIMITS["num_heads"]) + 1) if config.d_model % n == 0]
        best = min(near, key=lambda n: abs(n - config.num_heads))
        wrong.append(
            f"num_heads is {config.num_heads}, which does not divide d_model {config.d_model}; "
            f"take {best}, or set head_dim"
        )
    if config.num_heads % config.kv_heads:
        wrong.append(f"num_kv_heads is {config.num_kv_heads}, which does not divide num_heads {config.num_heads}")
    if not 0 <= config.dropout < 1:
        wrong.append(f"dropout is {config.dropout}; it must be at least 0 and below 1")
    wrong += [
        unknown("dropout place", place, DROPOUT_PLACES) for place in set(config.dropout_places) - set(DROPOUT_PLACES)
    ]
    if not 0 < config.norm_eps < 1:
        wrong.append(f"norm_eps is {config.norm_eps}; it must be above 0 and below 1")
    if config.output_scale <= 0:
        wrong.append(f"output_scale is {config.output_scale}; it must be above 0")
    if config.parallel and config.norm != "pre":
        wrong.append("parallel attention and feed-forward need norm = 'pre'; norm is 'post'")
    if config.parallel and config.kind == "encoder-decoder":
        wrong.append("parallel attention and feed-forward have no place for cross-attention; set parallel = false")
    return wrong


def tying_faults(config: TransformerConfig) -> list[str]:
    """Matrices that cannot be one because their shapes differ."""
    wrong = []
    source, target = config.vocabulary("encoder"), config.vocab_size
    pair = config.kind == "encoder-decoder"
    if pair and config.tying == "three-way" and source != target:
        wrong.append(
            f"tying is 'three-way', but the vocabularies have {source} (source) and {target} (target) tokens; "
            "set tying = 'target'"
        )
    read = [
        side
        for side in config.sides
        if side != "cross" and not (side == "encoder" and pair and config.tying != "three-way")
    ]
    for side in read if config.tying != "none" else []:
        width = config.position(side).token_width(config.d_model)
        if width != config.d_model and width > 0:
            wrong.append(
                f"tying is {config.tying!r}, but {side}.combine = 'concatenate' leaves {width} channels to the tokens "
                f"and the output needs {config.d_model}; set tying = 'none', or {side}.combine = 'project'"
            )
    return wrong


def position_faults(config: TransformerConfig, side: Side, *, sizes_stand: bool = True) -> list[str]:
    """What is wrong with how one side gets position."""
    position = config.position(side)
    wrong = [f"{side}: {fault}" for fault in scheme_faults(CATALOGUE, position.scheme, position.options)]
    wrong += width_faults(config, side) + transform_faults(position, side)
    if position.skip_every < 0 or position.skip_every == 1:
        wrong.append(f"{side}.skip_every is {position.skip_every}; it must be 0 (no layer skips) or at least 2")
    if wrong or not sizes_stand:
        return wrong
    try:
        scheme = outline(config, side)
    except ConfigError as fault:
        return [f"{side}: {sentence}" for sentence in fault.faults]
    except (RuntimeError, TypeError, ValueError, ArithmeticError, MemoryError) as fault:
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        return [f"{side}: {position.scheme} cannot be built with these sizes and options: {reason}"]
    return seam_faults(scheme, position, side, config.causal(side))


def width_faults(config: TransformerConfig, side: Side) -> list[str]:
    """d_p missing, too large or without use."""
    position, d_model = config.position(side), config.d_model
    if position.combine == "add":
        return (
            [] if position.width is None else [f"{side}.width is {position.width}, but combine = 'add' takes no width"]
        )
    if position.width is None:
        return [f"{side}.combine is {position.combine!r} and needs {side}.width, the d_p channels of the encoding"]
    if position.width < 1:
        return [f"{side}.width is {position.width}; it must be at least 1"]
    if position.combine == "concatenate" and position.width >= d_model:
        return [
            f"{side}.width (d_p) is {position.width}, but d_model is {d_model}; d_p must leave channels to the tokens"
        ]
    return []


def transform_faults(position: Position, side: Side) -> list[str]:
    """A transform that is unknown, or whose options are."""
    if position.transform is None:
        return [f"{side}.transform_options say what no transform reads"] if position.transform_options else []
    if side == "cross":
        return ["cross.transform: cross-attention reads the positions as they were counted"]
    known = {name: TRANSFORMS[name] for name in TRANSFORMS if name == position.transform}
    kinds = get_type_hints(known[position.transform]) if known else {}
    wrong = [
        fault
        for key, value in position.transform_options.items()
        if key in kinds
        for fault in misfits(f"{side}.transform_options.{key}", value, kinds[key])
    ]
    if wrong:
        return wrong
    try:
        position.make_transform()
    except ConfigError as fault:
        return [f"{side}: {sentence}" for sentence in fault.faults]
    return []


def seam_faults(scheme: Scheme, position: Position, side: Side, causal: bool) -> list[str]:
    """A scheme where its seam does not exist, or cannot be."""
    wrong = []
    hooks = type(scheme).hooks()
    if not causal and scheme.declares.causal_only:
        wrong.append(f"{side}: {position.scheme} is defined only under a causal mask, and the {side} has none")
    if side == "cross" and hooks & {"encode", "locate"}:
        wrong.append(
            f"cross: {position.scheme} enters at the token embedding or layer input, which cross-attention lacks"
        )
    if "encode" not in hooks and (position.combine != "add" or position.every_layer):
        asked = "every_layer" if position.every_layer else f"combine = {position.combine!r}"
        wrong.append(f"{side}: {position.scheme} gives nothing at the token embedding, so {asked} means nothing")
    if position.every_layer and position.combine != "add":
        wrong.append(f"{side}.every_layer adds the encoding again, so combine must be 'add', not {position.combine!r}")
    transform = position.make_transform()
    if transform is not None and transform.real_valued and not scheme.declares.real_valued:
        wrong.append(f"{side}: {position.transform} gives real numbers, and {position.scheme} takes whole positions")
    return wrong
