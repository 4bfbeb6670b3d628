"""Find which options of experts and of compressed keys and values contradict each other or the sizes of a model."""

from __future__ import annotations

from collections.abc import Iterator

from clockhands.errors import Fault
from clockhands.model.config_fields import TransformerFields

__all__ = ["find_layer_option_faults"]


def find_layer_option_faults(config: TransformerFields) -> Iterator[Fault]:
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
