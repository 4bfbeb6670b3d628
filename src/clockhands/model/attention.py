"""Multi-head attention: projections, KV cache and scheme. What a head computes stands in ``clockhands.attention``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import nn

from clockhands.attention import attend, attend_rotated
from clockhands.model.config import TransformerConfig
from clockhands.model.kv_cache import (
    KVCache,
    append_positions,
    keeps_positions,
    read_coordinates,
    refuse_quantized,
    refuse_sliding,
    shares_keys,
    split_positions,
)
from clockhands.model.masks import Placement
from clockhands.schemes import Scheme
from clockhands.shapes import Float, Tensor

__all__ = ["Attention", "AttentionContext", "CrossAttention", "FusedLinear", "SelfAttention"]


@dataclass(frozen=True)
class AttentionContext:
    """Scheme, placement (positions and mask), KV cache and index of the layer of one attention call.

    ``lean``: call the kernel alone. It is valid if the scheme has no hook after ``rotate``, the model is in evaluation,
    no recorder is active and ``placement.causal`` is False. ``LeanDecoder`` decides it at every step.
    """

    scheme: Scheme
    placement: Placement
    cache: KVCache | None = None
    layer: int = 0
    lean: bool = False


class FusedLinear(nn.Linear):
    """A linear layer that is several projections of one input: ``parts`` are their widths, rows of its weight.

    Each is initialised as if it were a matrix of its own.
    """

    def __init__(self, width: int, parts: tuple[int, ...], bias: bool) -> None:
        super().__init__(width, sum(parts), bias=bias)
        self.parts = parts

    def split_heads(self, x_BSD: Float[Tensor, "B S D"], head_dim: int) -> tuple[Float[Tensor, "B _H S K"], ...]:
        """Project, and return every part as [B, heads, S, head_dim]."""
        joined = self(x_BSD)
        batch, length, _ = joined.shape
        parts = joined.split_with_sizes(self.parts, -1) if len(self.parts) > 1 else (joined,)
        return tuple([part.reshape(batch, length, -1, head_dim).transpose(1, 2) for part in parts])


class Attention(nn.Module):
    """The part that self-attention and cross-attention share (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.head_dim, self.group = config.d_head, config.num_heads // config.kv_heads
        self.scale, self.dropout = config.attention_scale, config.rate("attention")
        self.inner, self.kv_inner = config.num_heads * config.d_head, config.kv_heads * config.d_head
        self.out = nn.Linear(self.inner, config.d_model, bias=config.attention_bias)

    def repeat_heads(self, x_BGTK: Float[Tensor, "B G T K"]) -> Float[Tensor, "B H T K"]:
        """Repeat each of G key or value heads for the query heads of its group: [B, G, T, K] to [B, H, T, K]."""
        return x_BGTK if self.group == 1 else x_BGTK.repeat_interleave(self.group, dim=1)

    def update_cache(
        self,
        cache: KVCache,
        layer: int,
        k_BHSK: Float[Tensor, "B H S Kp"],
        v_BHSK: Float[Tensor, "B H S Kv"],
        shared: bool = True,
    ) -> tuple[Float[Tensor, "B H T Kp"], Float[Tensor, "B H T Kv"]]:
        """Append repeated keys and values to a cache, and return all that it holds, repeated again.

        The cache holds one head for each group of query heads (Ainslie et al. 2023), which is what grouping is for.
        ``shared``: whether the keys of a group are equal; if not, the cache holds a head for every query head.
        """
        if self.group == 1 or not shared:
            return cache.update(k_BHSK, v_BHSK, layer)
        k_BGTK, v_BGTK = cache.update(k_BHSK[:, :: self.group], v_BHSK[:, :: self.group], layer)
        return self.repeat_heads(k_BGTK), self.repeat_heads(v_BGTK)

    def attend_heads(
        self,
        scheme: Scheme,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BHTK: Float[Tensor, "B H T K"],
        v_BHTK: Float[Tensor, "B H T Kv"],
        placement: Placement,
        *,
        rotated: bool = False,
    ) -> Float[Tensor, "B H S Kv"]:
        """Attend with the scheme's hooks; heads are not yet joined."""
        return attend(
            scheme, q_BHSK, k_BHTK, v_BHTK, placement.qpos_BS, placement.kpos_BT, placement.mask_BHSM,
            causal=placement.causal, scale=self.logit_scale(scheme), rotated=rotated,
            dropout=self.dropout if self.training else 0.0,
        )  # fmt: skip

    def logit_scale(self, scheme: Scheme) -> float:
        """Return the factor on q·k: the configuration's, or else the scheme's."""
        return scheme.scale(self.head_dim) if self.scale is None else self.scale

    def join_heads(self, out_BHSK: Float[Tensor, "B H S Kv"]) -> Float[Tensor, "B S D"]:
        """Join the heads and apply the output projection."""
        return self.out(out_BHSK.transpose(1, 2).flatten(2))

    def attend_cached(
        self,
        scheme: Scheme,
        q_BHSK: Float[Tensor, "B H S K"],
        stored_BHTK: Float[Tensor, "B H T Kp"],
        v_BHTK: Float[Tensor, "B H T Kv"],
        placement: Placement,
        *,
        rotated: bool,
    ) -> Float[Tensor, "B H S Kv"]:
        """Attend to all keys of a cache: [B, H, S, K] to [B, H, S, Kv].

        ``stored_BHTK`` carries positions as further channels if the scheme keeps them (``keeps_positions``). Raises
        PositionError if the cache has forgotten keys.
        """
        if placement.length is not None:
            refuse_sliding(stored_BHTK, placement.length)
            stored_BHTK, v_BHTK = stored_BHTK[:, :, : placement.length], v_BHTK[:, :, : placement.length]
        if keeps_positions(scheme):
            k_BHTK, kpos = split_positions(stored_BHTK, q_BHSK.shape[-1], placement.kpos_BT)
        else:
            # Keys were rotated before they were cached and no later hook reads their positions: zeros [B, T] serve.
            k_BHTK, kpos = stored_BHTK, placement.qpos_BS.new_zeros(()).expand(len(v_BHTK), v_BHTK.shape[2])
        placement = dataclasses.replace(placement, kpos_BT=kpos)
        return self.attend_heads(scheme, q_BHSK, k_BHTK, v_BHTK, placement, rotated=rotated)


class SelfAttention(Attention):
    """Attention of every token to the tokens of its own side."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.qkv = FusedLinear(config.d_model, (self.inner, self.kv_inner, self.kv_inner), bias=config.attention_bias)

    def forward(self, x_BSD: Float[Tensor, "B S D"], context: AttentionContext) -> Float[Tensor, "B S D"]:
        """Attend among the tokens of one side: [B, S, D] to [B, S, D]."""
        q, k, v = self.qkv.split_heads(x_BSD, self.head_dim)
        return self.join_heads(self.attend_with_cache(x_BSD, q, self.repeat_heads(k), self.repeat_heads(v), context))

    def attend_with_cache(
        self,
        x_BSD: Float[Tensor, "B S D"],
        q: Float[Tensor, "B H S K"],
        k: Float[Tensor, "B H S K"],
        v: Float[Tensor, "B H S K"],
        context: AttentionContext,
    ) -> Float[Tensor, "B H S Kv"]:
        """Update the KV cache and attend with every hook of the scheme: queries [B, H, S, K] to [B, H, S, Kv].

        ``x_BSD`` is the layer's input, which ``scheme.locate`` alone reads.
        """
        scheme, placement, cache, layer = context.scheme, context.placement, context.cache, context.layer
        if context.lean and cache is not None:
            q, k = scheme.rotate(q, k, placement.qpos_BS, placement.kpos_BT)
            k, v = self.update_cache(cache, layer, k, v, shares_keys(scheme))
            return attend_rotated(q, k, v, placement.mask_BHSM, self.logit_scale(scheme))
        if cache is not None:
            refuse_quantized(scheme, cache, layer)
        if "locate" in scheme.active_hooks():
            past = None if cache is None else read_coordinates(cache, layer, self.head_dim)
            # An offloaded cache may hold them elsewhere until it is asked for its keys.
            past = None if past is None else past.to(x_BSD.device)
            located = scheme.locate(x_BSD, placement.qpos_BS, past)
            assert located is not None, f"{type(scheme).__name__}.locate returned None"
            placement = dataclasses.replace(placement, qpos_BS=located, kpos_BT=located)
        if cache is None:
            return self.attend_heads(scheme, q, k, v, placement)
        rotated = scheme.declares.cache == "rotated"
        if rotated:
            q, k = scheme.rotate(q, k, placement.qpos_BS, placement.kpos_BT)
        stored = append_positions(k, placement.kpos_BT) if keeps_positions(scheme) else k
        stored, v = self.update_cache(cache, layer, stored, v, shares_keys(scheme))
        return self.attend_cached(scheme, q, stored, v, placement, rotated=rotated)


class CrossAttention(Attention):
    """Attention of every target token to the source, whose keys and values are computed once and cached."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.q = FusedLinear(config.d_model, (self.inner,), bias=config.attention_bias)
        self.kv = FusedLinear(config.d_model, (self.kv_inner, self.kv_inner), bias=config.attention_bias)

    def forward(
        self,
        x_BSD: Float[Tensor, "B S D"],
        source_BTD: Float[Tensor, "B T D"],
        context: AttentionContext,
    ) -> Float[Tensor, "B S D"]:
        """Attend from target tokens [B, S, D] to the source's states [B, T, D]: [B, S, D]."""
        (q,) = self.q.split_heads(x_BSD, self.head_dim)
        k, v = self.project_source(source_BTD, context.cache, context.layer, q.device)
        scheme, placement = context.scheme, context.placement
        if context.lean:
            return self.join_heads(attend_rotated(q, k, v, placement.mask_BHSM, self.logit_scale(scheme)))
        return self.join_heads(self.attend_heads(scheme, q, k, v, placement))

    def project_source(
        self, source_BTD: Float[Tensor, "B T D"], cache: KVCache | None, layer: int, device: torch.device
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H T K"]]:
        """Compute keys and values of the source, or read them from the cache."""
        if cache is not None and cache.get_seq_length(layer):
            kept = cache.layers[layer]
            return self.repeat_heads(kept.keys.to(device)), self.repeat_heads(kept.values.to(device))
        k, v = map(self.repeat_heads, self.kv.split_heads(source_BTD, self.head_dim))
        return (k, v) if cache is None else self.update_cache(cache, layer, k, v)
