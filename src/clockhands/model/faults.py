"""Find what in a configuration contradicts itself, one sentence each, and not the first fault alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from clockhands.errors import ConfigError, Fault
from clockhands.model.config_fields import LARGEST_HEAD_WIDTH, LARGEST_NUM_HEADS, Side, TransformerFields
from clockhands.model.position_config import PositionConfig
from clockhands.model.side_schemes import (
    SchemeSummary,
    find_layer_count_faults,
    find_layer_faults,
    list_layer_specs,
)
from clockhands.options import check_options, options_of
from clockhands.positions import TRANSFORMS
from clockhands.schemes import CATALOGUE, find_option_faults


def find_faults(config: TransformerFields, summarise: Callable[[Side], SchemeSummary]) -> list[str]:
    """Return what is wrong with a configuration, one sentence each; empty if nothing is.

    Each field is right by itself. Whether the model's sizes suit a scheme is only checked if they suit each other.
    ``summarise`` builds the schemes of a side to look at them.
    """
    size_faults = _find_size_faults(config)
    faults: list[str] = [*size_faults, *find_vocabulary_faults(config)]
    for side in config.sides:
        side_faults = find_position_faults(config.get_position_config(side), side) + _find_width_faults(config, side)
        if not side_faults and not size_faults:
            # To check this the scheme is built, which needs valid options and sizes.
            side_faults = find_scheme_faults(config, side, summarise)
        faults += side_faults
    return faults


def _find_size_faults(config: TransformerFields) -> list[Fault]:
    """Return which sizes contradict each other, and why layers cannot be parallel.

    Each is a ``Fault`` that names every field on which it depends: a caller that has put another value in the place of
    one that is not valid leaves out the faults that follow from it (``model.config``).
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
    return [*faults, *_find_layer_option_faults(config)]


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
        width = config.get_position_config(side).compute_token_width(config.d_model)
        # A width that leaves no channels to the tokens is told by ``_find_width_faults``.
        if not untied and config.tying != "none" and 0 < width != config.d_model:
            sentence = (
                f"tying is {config.tying!r}, but {side}.combine = 'concatenate' leaves {width} channels to the tokens "
                f"and the output needs {config.d_model}; set tying = 'none', or {side}.combine = 'project'"
            )
            faults.append(Fault(sentence, "tying", "kind", "d_model"))
    return faults


def _find_layer_option_faults(config: TransformerFields) -> Iterator[Fault]:
    """Yield which options of ``LayerOptions`` contradict each other or the sizes of the model."""
    if not config.first_norm and (config.norm not in ("pre", "sandwich") or config.parallel):
        sentence = "first_norm = false needs norm = 'pre' or 'sandwich', and parallel = false"
        yield Fault(f"{sentence}; norm is {config.norm!r}", "first_norm", "norm", "parallel")
    yield from _find_latent_faults(config)
    if config.experts and config.experts_per_token > config.experts:
        sentence = f"experts_per_token is {config.experts_per_token}, and there are {config.experts} experts"
        yield Fault(f"{sentence}; lower experts_per_token", "experts_per_token", "experts")
    if config.experts:
        yield from _find_group_faults(config)
    else:
        for name, off in (("expert_layers", None), ("expert_width", None), ("shared_expert_width", 0)):
            if getattr(config, name) != off:
                yield Fault(
                    f"{name} is {getattr(config, name)}, and there are no experts; set experts", name, "experts"
                )
    most = max((config.count_layers(side) for side in config.stack_sides), default=0)
    wrong = [layer for layer in config.expert_layers or () if not 0 <= layer < most]
    if wrong:
        sentence = f"expert_layers has {wrong[0]}, and the layers are 0 to {most - 1}"
        yield Fault(sentence, "expert_layers", "encoder_layers", "decoder_layers")


def _find_group_faults(config: TransformerFields) -> Iterator[Fault]:
    """Yield why the experts cannot be divided into groups."""
    groups, chosen = config.expert_groups, config.expert_groups_per_token
    fields = ("expert_groups", "expert_groups_per_token", "experts", "experts_per_token", "router")
    if groups > 1 and config.router != "sigmoid":
        yield Fault(f"expert_groups is {groups}, which needs router = 'sigmoid'; router is {config.router!r}", *fields)
    if config.experts % groups or (groups > 1 and config.experts // groups < 2):
        sentence = (
            f"expert_groups is {groups}, but must divide the {config.experts} experts into groups of at least two"
        )
        yield Fault(sentence, *fields)
    elif chosen > groups or config.experts_per_token > chosen * (config.experts // groups):
        sentence = (
            f"expert_groups_per_token is {chosen}, but must be at most expert_groups ({groups}), and so many that"
        )
        yield Fault(f"{sentence} the groups have {config.experts_per_token} experts together", *fields)


def _find_latent_faults(config: TransformerFields) -> Iterator[Fault]:
    """Yield what does not go with a compressed state of keys and values, or needs one."""
    if config.latent_width is None:
        for name, off in (("latent_query_width", None), ("shared_key_dim", 0), ("value_dim", None)):
            if getattr(config, name) != off:
                yield Fault(f"{name} is {getattr(config, name)}, and needs latent_width", name, "latent_width")
        return
    if config.shared_key_dim >= config.resolved_head_dim:
        sentence = f"shared_key_dim is {config.shared_key_dim}, but must be less than the width of a head"
        yield Fault(f"{sentence}, {config.resolved_head_dim}", "shared_key_dim", "head_dim", "d_model", "num_heads")
    if config.resolved_num_kv_heads != config.num_heads:
        sentence = f"latent_width needs as many heads of keys as of queries; num_kv_heads is {config.num_kv_heads}"
        yield Fault(sentence, "latent_width", "num_kv_heads", "num_heads")
    if config.query_key_norm != "none":
        sentence = f"latent_width has norms of its own; query_key_norm is {config.query_key_norm!r}"
        yield Fault(f"{sentence}, but must be 'none'", "latent_width", "query_key_norm")


def find_position_faults(position: PositionConfig, side: Side) -> list[str]:
    """Return what is wrong with the positional encoding of one side, whatever the sizes of the model."""
    faults = [f"{side}: {fault}" for fault in find_option_faults(CATALOGUE, position.scheme, position.options)]
    faults += find_layer_faults(position, side)
    faults += _find_transform_faults(position, side)
    if position.skip_every < 0 or position.skip_every == 1:
        faults.append(f"{side}.skip_every is {position.skip_every}; it must be 0 (no layer skips) or at least 2")
    return faults


def _find_width_faults(config: TransformerFields, side: Side) -> list[str]:
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


def _find_transform_faults(position: PositionConfig, side: Side) -> list[str]:
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


def find_scheme_faults(config: TransformerFields, side: Side, summarise: Callable[[Side], SchemeSummary]) -> list[str]:
    """Return why the scheme of a side refuses the sizes of the model, or cannot act on that side."""
    position = config.get_position_config(side)
    count_faults = find_layer_count_faults(position, side, config.count_layers(side))
    if count_faults:
        return count_faults
    try:
        summary = summarise(side)
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
    return _find_hook_faults(summary, position, side, config.is_causal(side))


def _find_hook_faults(summary: SchemeSummary, position: PositionConfig, side: Side, causal: bool) -> list[str]:
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
