"""Options of layers in which models of others differ from the paper's: a compressed state of keys, and experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from clockhands.model.config_types import LARGEST_HEAD_WIDTH, FeedForwardWidth, HeadWidth, Width
from clockhands.options import Positive, Range

__all__ = ["LayerOptions"]

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
        experts_per_token: number of experts that read a token: those with the highest router logits, or with the
            router ``sigmoid`` those with the highest sums of sigmoid and constant in the chosen groups.
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
