"""Options of layers in which models of others differ from the paper's: a compressed state of keys, and experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from clockhands.errors import Fault
from clockhands.model.config_types import LARGEST_HEAD_WIDTH, FeedForwardWidth, HeadWidth, Width
from clockhands.options import Positive, Range

__all__ = ["LayerOptions", "find_layer_option_faults"]

ExpertCount = Annotated[int, Range(least=0, most=2**12)]


@dataclass(frozen=True)
class LayerOptions:
    """The options of a ``TransformerConfig`` that describe self-attention and feed-forward layers of known models.

    Args:
        first_norm: whether a norm precedes the attention of the first layer; off in ModernBERT, where that layer reads
            the normalised embedding. Off needs ``norm`` = ``pre`` or ``sandwich``, and layers that are not parallel.
        latent_width: keys and values of self-attention are projected from a state of so many channels with a norm of
            its own (multi-head latent attention, MLA; DeepSeek-AI 2024); None: from the layer's input. The KV cache
            holds keys and values of all heads, not that state.
        latent_query_width: the same for queries, with a state of their own; None: they are projected from the input.
        shared_key_dim: the first channels of a key that all heads share, projected from the layer's input: with
            ``latent_width``, the slice that a scheme rotates (decoupled RoPE).
        value_dim: width of a head's values with ``latent_width``; None: that of its keys.
        experts: number of feed-forward networks in a layer, of which each token is read by some; 0: one network reads
            all. Training adds no loss that divides the tokens evenly among them.
        experts_per_token: number of experts that read a token: those whose router logits are the highest.
        expert_width: width inside an expert; None: ``d_ff``.
        expert_layers: the layers that have experts, counted from 0; None: all.
        shared_expert_width: width of a further network that reads all tokens beside the experts; 0: there is none.
        router: ``softmax`` (Mixtral, gpt-oss): outputs of the experts times the softmax of the chosen logits;
            ``sigmoid`` (DeepSeek-V3): times their sigmoids, which sum to ``router_scale``, and a constant for each
            expert is added before choosing; ``sigmoid-input`` (Llama 4): it multiplies the input of the expert.
        expert_groups: with the router ``sigmoid``, the experts are in so many groups of equal size, and a token's
            experts come from the ``expert_groups_per_token`` groups whose two best experts are the best together.
        expert_groups_per_token: number of groups from which the experts of a token come.
        router_scale: what the factors of a token's experts sum to with the router ``sigmoid``.
    """

    first_norm: bool = True
    latent_width: Width | None = None
    latent_query_width: Width | None = None
    shared_key_dim: Annotated[int, Range(least=0, most=LARGEST_HEAD_WIDTH)] = 0
    value_dim: HeadWidth | None = None
    experts: ExpertCount = 0
    experts_per_token: Annotated[int, Range(least=1, most=2**12)] = 1
    expert_width: FeedForwardWidth | None = None
    expert_layers: tuple[int, ...] | None = None
    shared_expert_width: Annotated[int, Range(least=0, most=2**22)] = 0
    router: Literal["softmax", "sigmoid", "sigmoid-input"] = "softmax"
    expert_groups: Annotated[int, Range(least=1, most=2**12)] = 1
    expert_groups_per_token: Annotated[int, Range(least=1, most=2**12)] = 1
    router_scale: Positive = 1.0

    def has_experts(self, layer: int) -> bool:
        """Return whether the feed-forward layer of a layer, counted from 0, consists of experts."""
        return self.experts > 0 and (self.expert_layers is None or layer in self.expert_layers)


def find_layer_option_faults(config: Any) -> Iterator[Fault]:
    """Yield which options of ``LayerOptions`` contradict each other or the sizes of the model.

    ``config``: a ``TransformerConfig``, whose module imports this one.
    """
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


def _find_group_faults(config: Any) -> Iterator[Fault]:
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


def _find_latent_faults(config: Any) -> Iterator[Fault]:
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
