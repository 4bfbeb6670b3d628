"""Find what in a configuration contradicts itself, one sentence each, and not the first fault alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from clockhands.errors import ConfigError, Fault
from clockhands.model.position_config import PositionConfig, Side
from clockhands.model.side_schemes import SchemeSummary, find_layer_count_faults, find_layer_faults, list_layer_specs
from clockhands.options import check_options, options_of
from clockhands.positions import TRANSFORMS
from clockhands.schemes import CATALOGUE, find_option_faults

Config: TypeAlias = Any
"""A ``TransformerConfig``, whose module imports this one."""
LARGEST_HEAD_WIDTH, LARGEST_NUM_HEADS, MOST_AXES = 2**17, 2**16, 64
"""The largest sizes that are accepted, on any machine. No known model reaches one of them."""


def find_faults(config: Config, summarise: Callable[[Side], SchemeSummary]) -> list[str]:
    """Return what is wrong with a configuration, one sentence each; empty if nothing is.

    Each field is right by itself. Whether the model's sizes suit a scheme is only checked if they suit each other.
    ``summarise`` builds the schemes of a side to look at them.
    """
    size_faults = _find_size_faults(config)
    faults: list[str] = [*size_faults, *find_vocabulary_faults(config)]
    for side in config.sides:
        position = config.get_position_config(side)
        side_faults = find_position_faults(position, side) + _find_width_faults(position, side, config.d_model)
        if not side_faults and not size_faults:
            # To check this the scheme is built, which needs valid options and sizes.
            side_faults = find_scheme_faults(config, side, summarise)
        faults += side_faults
    return faults


def _find_size_faults(config: Config) -> list[Fault]:
    """Return which sizes and options of layers contradict each other.

    Each is a ``Fault`` that names every field on which it depends: a caller that has put another value in the place of
    one that is not valid leaves out the faults that follow from it (``model.config``).
    """
    faults: list[Fault] = []

    def add(sentence: str, *fields: str) -> None:
        faults.append(Fault(sentence, *fields))

    head_dim, num_heads, num_kv_heads = config.resolved_head_dim, config.num_heads, config.resolved_num_kv_heads
    head_fields = ("d_model", "num_heads", "head_dim")
    if head_dim > LARGEST_HEAD_WIDTH:
        add(f"d_model / num_heads is {head_dim:,}, but must be at most {LARGEST_HEAD_WIDTH:,}; raise num_heads, or "
            "lower d_model", *head_fields)  # fmt: skip
    if config.head_dim is None and config.d_model % num_heads:
        nearest = _find_nearest_divisor(config.d_model, num_heads)
        add(f"num_heads is {num_heads}, which does not divide d_model {config.d_model}; take {nearest}, or set "
            "head_dim", *head_fields)  # fmt: skip
    if num_heads % num_kv_heads:
        nearest = _find_nearest_divisor(num_heads, num_kv_heads)
        add(f"num_kv_heads is {num_kv_heads}, which does not divide num_heads {num_heads}; take {nearest}",
            "num_kv_heads", "num_heads")  # fmt: skip
    if config.parallel and config.norm != "pre":
        add(f"parallel attention and feed-forward need norm = 'pre'; norm is {config.norm!r}", "parallel", "norm")
    if config.parallel and config.architecture == "encoder-decoder":
        add("parallel attention and feed-forward have no place for cross-attention; set parallel = false",
            "parallel", "kind")  # fmt: skip
    if not config.first_norm and (config.norm not in ("pre", "sandwich") or config.parallel):
        add(f"first_norm = false needs norm = 'pre' or 'sandwich', and parallel = false; norm is {config.norm!r}",
            "first_norm", "norm", "parallel")  # fmt: skip
    if config.latent_width is None:
        for name in ("latent_query_width", "shared_key_dim", "value_dim"):
            if getattr(config, name) not in (None, 0):
                add(f"{name} is {getattr(config, name)}, and needs latent_width", name, "latent_width")
    else:
        if config.shared_key_dim >= head_dim:
            add(f"shared_key_dim is {config.shared_key_dim}, but must be less than the width of a head, {head_dim}",
                "shared_key_dim", "head_dim", "d_model", "num_heads")  # fmt: skip
        if num_kv_heads != num_heads:
            add(f"latent_width needs as many heads of keys as of queries; num_kv_heads is {config.num_kv_heads}",
                "latent_width", "num_kv_heads", "num_heads")  # fmt: skip
        if config.query_key_norm != "none":
            add(f"latent_width has norms of its own; query_key_norm is {config.query_key_norm!r}, but must be 'none'",
                "latent_width", "query_key_norm")  # fmt: skip
    return [*faults, *_find_expert_faults(config)]


def _find_nearest_divisor(size: int, wanted: int) -> int:
    divisors = (n for n in range(1, min(size, LARGEST_NUM_HEADS) + 1) if size % n == 0)
    return min(divisors, key=lambda n: abs(n - wanted))


def find_vocabulary_faults(config: Config) -> list[Fault]:
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


def _find_expert_faults(config: Config) -> Iterator[Fault]:
    """Yield what does not go with the experts of a model, or needs some."""
    experts, a_token = config.experts, config.experts_per_token
    groups, chosen = config.expert_groups, config.expert_groups_per_token
    fields = ("expert_groups", "expert_groups_per_token", "experts", "experts_per_token", "router")
    if not experts:
        for name in ("expert_layers", "expert_width", "shared_expert_width"):
            if getattr(config, name) not in (None, 0):
                sentence = f"{name} is {getattr(config, name)}, and there are no experts; set experts"
                yield Fault(sentence, name, "experts")
    elif a_token > experts:
        sentence = f"experts_per_token is {a_token}, and there are {experts} experts; lower experts_per_token"
        yield Fault(sentence, "experts_per_token", "experts")
    if experts and groups > 1 and config.router != "sigmoid":
        yield Fault(f"expert_groups is {groups}, which needs router = 'sigmoid'; router is {config.router!r}", *fields)
    if experts % groups or (experts and groups > 1 and experts // groups < 2):
        sentence = f"expert_groups is {groups}, but must divide the {experts} experts into groups of at least two"
        yield Fault(sentence, *fields)
    elif experts and (chosen > groups or a_token > chosen * (experts // groups)):
        sentence = (
            f"expert_groups_per_token is {chosen}, but must be at most expert_groups ({groups}), and so many that the "
            f"groups have {a_token} experts together"
        )
        yield Fault(sentence, *fields)
    most = max((config.count_layers(side) for side in config.stack_sides), default=0)
    wrong = [layer for layer in config.expert_layers or () if not 0 <= layer < most]
    if wrong:
        sentence = f"expert_layers has {wrong[0]}, and the layers are 0 to {most - 1}"
        yield Fault(sentence, "expert_layers", "encoder_layers", "decoder_layers")


def find_position_faults(position: PositionConfig, side: Side) -> list[str]:
    """Return what is wrong with the positional encoding of one side, whatever the sizes of the model."""
    faults = [f"{side}: {fault}" for fault in find_option_faults(CATALOGUE, position.scheme, position.options)]
    faults += find_layer_faults(position, side)
    if position.transform is None:
        if position.transform_options:
            faults.append(f"{side}.transform_options is set but {side}.transform is not: set it or remove the options")
    elif side == "cross":
        faults.append("cross.transform is set, but cross-attention reads positions as they were counted: remove it")
    elif position.transform not in TRANSFORMS:
        faults.append(f"{side}: {TRANSFORMS.describe_unknown_name(position.transform)}")
    else:
        options, prefix = options_of(TRANSFORMS[position.transform]), f"{side}.transform_options."
        wrong = check_options(position.transform_options, options, position.transform, prefix=prefix)[1]
        try:
            if not wrong:
                position.make_transform()
        except ConfigError as error:
            wrong = [f"{side}: {sentence}" for sentence in error.faults]
        faults += wrong
    if position.skip_every < 0 or position.skip_every == 1:
        faults.append(f"{side}.skip_every is {position.skip_every}; it must be 0 (no layer skips) or at least 2")
    return faults


def _find_width_faults(position: PositionConfig, side: Side, d_model: int) -> list[str]:
    width = position.width
    if position.combine == "add":
        return [] if width is None else [f"{side}.width is {width}, but combine = 'add' takes no width"]
    if width is None:
        return [f"{side}.combine is {position.combine!r} and needs {side}.width, the d_p channels of the encoding"]
    if position.combine == "concatenate" and width >= d_model:
        return [f"{side}.width (d_p) is {width}, but d_model is {d_model}; d_p must leave channels to the tokens"]
    return []


def find_scheme_faults(config: Config, side: Side, summarise: Callable[[Side], SchemeSummary]) -> list[str]:
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
    for layer in list_layer_specs(position, config.count_layers(side)):
        for name, _ in layer:
            if "encode" in CATALOGUE[name].hooks():
                advice = f"give it as {side}.scheme"
                return [f"{side}.layers: {name} adds vectors at the token embedding, before all layers; {advice}"]
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
    axes = summary.declares.axes
    if axes is not None and axes > MOST_AXES:
        faults.append(f"{side}: {position.name} reads positions of {axes:,} coordinates; {MOST_AXES} are the most")
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
