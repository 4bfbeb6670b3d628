"""Multi-head attention: projections, cache, and the scheme. What a head computes stands in ``schemes.attend``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import nn

from clockhands.attention import attend
from clockhands.model.config import TransformerConfig
from clockhands.model.memory import (
    KeyCache,
    attach,
    check_exact,
    check_whole,
    detach,
    keeps_positions,
    past_coordinates,
)
from clockhands.model.sight import Sight
from clockhands.schemes import Scheme
from clockhands.shapes import Float, Tensor


@dataclass(frozen=True)
class Look:
    """What one attention of one layer works with besides its input."""

    scheme: Scheme
    sight: Sight
    cache: KeyCache | None = None
    layer: int = 0


class Fused(nn.Linear):
    """Several projections of one input in one matrix; each is initialised as the matrix of its own that it is."""

    def __init__(self, width: int, parts: tuple[int, ...], bias: bool) -> None:
        super().__init__(width, sum(parts), bias=bias)
        self.parts = parts

    def split_heads(self, x_BSD: Float[Tensor, "B S D"], head_dim: int) -> tuple[Float[Tensor, "B _H S K"], ...]:
        """Every part as [B, heads, S, head_dim]."""
        joined = self(x_BSD)
        return tuple(part.unflatten(-1, (-1, head_dim)).transpose(1, 2) for part in joined.split(self.parts, dim=-1))


class Attention(nn.Module):
    """What self-attention and cross-attention share (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.head_dim, self.group = config.d_head, config.num_heads // config.kv_heads
        self.scale, self.dropout = config.attention_scale, config.rate("attention")
        self.inner, self.kv_inner = config.num_heads * config.d_head, config.kv_heads * config.d_head
        self.out = nn.Linear(self.inner, config.d_model, bias=config.attention_bias)

    def shared(self, x_BHSK: Float[Tensor, "B G S K"]) -> Float[Tensor, "B H S K"]:
        """Key or value heads, each repeated for the queries of its group."""
        return x_BHSK if self.group == 1 else x_BHSK.repeat_interleave(self.group, dim=1)

    def attended(
        self,
        scheme: Scheme,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BHTK: Float[Tensor, "B H T K"],
        v_BHTK: Float[Tensor, "B H T Kv"],
        sight: Sight,
        *,
        rotated: bool = False,
    ) -> Float[Tensor, "B H S Kv"]:
        """What the heads see."""
        return attend(
            scheme, q_BHSK, k_BHTK, v_BHTK, sight.qpos_BS, sight.kpos_BT, sight.visible_BHSM,
            causal=sight.causal, scale=self.factor(scheme), rotated=rotated,
            dropout=self.dropout if self.training else 0.0,
        )  # fmt: skip

    def factor(self, scheme: Scheme) -> float:
        """What multiplies q·k."""
        return scheme.scale(self.head_dim) if self.scale is None else self.scale

    def joined(self, out_BHSK: Float[Tensor, "B H S Kv"]) -> Float[Tensor, "B S D"]:
        """Heads joined, and the output projection."""
        return self.out(out_BHSK.transpose(1, 2).flatten(2))

    def remembered(
        self,
        scheme: Scheme,
        q_BHSK: Float[Tensor, "B H S K"],
        stored_BHTK: Float[Tensor, "B H T Kp"],
        v_BHTK: Float[Tensor, "B H T Kv"],
        sight: Sight,
        *,
        rotated: bool,
    ) -> Float[Tensor, "B H S Kv"]:
        """Attention to keys as a cache gave them: with their positions if the scheme needs those again."""
        if sight.length is not None:
            check_whole(stored_BHTK, sight.length)
            stored_BHTK, v_BHTK = stored_BHTK[:, :, : sight.length], v_BHTK[:, :, : sight.length]
        if keeps_positions(scheme):
            k_BHTK, kpos = detach(stored_BHTK, q_BHSK.shape[-1], sight.kpos_BT)
        else:
            # No hook that is still to come reads the keys' positions; only their shape must be right.
            k_BHTK, kpos = stored_BHTK, sight.qpos_BS.new_zeros(()).expand(len(v_BHTK), v_BHTK.shape[2])
        seen = dataclasses.replace(sight, kpos_BT=kpos)
        return self.attended(scheme, q_BHSK, k_BHTK, v_BHTK, seen, rotated=rotated)


class SelfAttention(Attention):
    """Every token looks at the tokens of its own side."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.qkv = Fused(config.d_model, (self.inner, self.kv_inner, self.kv_inner), bias=config.attention_bias)

    def forward(self, x_BSD: Float[Tensor, "B S D"], look: Look) -> Float[Tensor, "B S D"]:
        q, k, v = self.qkv.split_heads(x_BSD, self.head_dim)
        return self.joined(self.looked(x_BSD, q, self.shared(k), self.shared(v), look))

    def looked(
        self,
        x_BSD: Float[Tensor, "B S D"],
        q: Float[Tensor, "B H S K"],
        k: Float[Tensor, "B H S K"],
        v: Float[Tensor, "B H S K"],
        look: Look,
    ) -> Float[Tensor, "B H S Kv"]:
        """What lies between the projections: the cache and every hook of the scheme."""
        scheme, sight, cache, layer = look.scheme, look.sight, look.cache, look.layer
        if cache is not None:
            check_exact(scheme, cache, layer)
        if "locate" in scheme.active_hooks():
            past = None if cache is None else past_coordinates(cache, layer, self.head_dim)
            # An offloaded cache may hold them elsewhere until it is asked for its keys.
            past = None if past is None else past.to(x_BSD.device)
            own = scheme.locate(x_BSD, sight.qpos_BS, past)
            assert own is not None, f"{type(scheme).__name__}.locate gave nothing"
            sight = dataclasses.replace(sight, qpos_BS=own, kpos_BT=own)
        if cache is None:
            return self.attended(scheme, q, k, v, sight)
        rotated = scheme.declares.cache == "rotated"
        if rotated:
            q, k = scheme.rotate(q, k, sight.qpos_BS, sight.kpos_BT)
        stored, v = cache.update(attach(k, sight.kpos_BT) if keeps_positions(scheme) else k, v, layer)
        return self.remembered(scheme, q, stored, v, sight, rotated=rotated)


class CrossAttention(Attention):
    """Every target token looks at the source. Keys and values of the source are computed once and kept."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.q = Fused(config.d_model, (self.inner,), bias=config.attention_bias)
        self.kv = Fused(config.d_model, (self.kv_inner, self.kv_inner), bias=config.attention_bias)

    def forward(
        self,
        x_BSD: Float[Tensor, "B S D"],
        source_BTD: Float[Tensor, "B T D"],
        look: Look,
    ) -> Float[Tensor, "B S D"]:
        (q,) = self.q.split_heads(x_BSD, self.head_dim)
        k, v = self.remembered_source(source_BTD, look.cache, look.layer, q.device)
        return self.joined(self.attended(look.scheme, q, k, v, look.sight))

    def remembered_source(
        self, source_BTD: Float[Tensor, "B T D"], cache: KeyCache | None, layer: int, device: torch.device
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H T K"]]:
        """Keys and values of the source, from the cache if they are there."""
        if cache is not None and cache.get_seq_length(layer):
            kept = cache.layers[layer]
            return kept.keys.to(device), kept.values.to(device)
        k, v = map(self.shared, self.kv.split_heads(source_BTD, self.head_dim))
        return (k, v) if cache is None else cache.update(k, v, layer)
