"""Multi-head attention: projections, KV cache and scheme; ``clockhands.attention`` computes the heads.

Keys and values have G heads, each that of H/G query heads (Ainslie et al. 2023), and are cached so. A letter p is for
keys that carry their positions as further channels (``kv_cache.append_positions``).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import nn

from clockhands.attention import attend
from clockhands.attention.request import share_heads
from clockhands.model.config import TransformerConfig
from clockhands.model.kv_cache import (
    KVCache,
    append_positions,
    keeps_window,
    may_share_keys,
    needs_stored_positions,
    read_coordinates,
    refuse_quantized_cache,
    refuse_sliding_cache,
    split_positions,
)
from clockhands.model.layers import FusedLinear, make_head_norm, normalise_heads
from clockhands.model.masks import Placement
from clockhands.schemes import Scheme
from clockhands.shapes import Float, Tensor


@dataclass(frozen=True)
class AttentionContext:
    """What one call of attention needs besides its input: scheme, placement, KV cache, and the index of the layer."""

    scheme: Scheme
    placement: Placement
    cache: KVCache | None = None
    layer: int = 0


class AttentionLayer(nn.Module):
    """The base of self-attention and cross-attention (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        num_kv_heads, self.head_dim = config.resolved_num_kv_heads, config.resolved_head_dim
        self.q_width, self.kv_width = config.num_heads * self.head_dim, num_kv_heads * self.head_dim
        self.scale, self.dropout = config.attention_scale, config.get_dropout("attention")
        self.out = nn.Linear(self.q_width, config.d_model, bias=config.attention_bias)

    def attend_heads(
        self,
        scheme: Scheme,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BGTK: Float[Tensor, "B G T K"],
        v_BGTK: Float[Tensor, "B G T Kv"],
        placement: Placement,
        *,
        rotated: bool = False,
    ) -> Float[Tensor, "B H S Kv"]:
        """Attend with every hook of the scheme: queries [B, H, S, K] to [B, H, S, Kv], one output for each head.

        ``rotated``: whether queries, keys and values have been rotated before. Raises PositionError for positions that
        the scheme does not take.
        """
        return attend(
            scheme, q_BHSK, k_BGTK, v_BGTK, placement.qpos, placement.kpos, placement.mask_BHSM,
            causal=placement.causal, scale=self.choose_scale(scheme), rotated=rotated,
            dropout=self.dropout if self.training else 0.0,
        )  # fmt: skip

    def choose_scale(self, scheme: Scheme) -> float:
        """Return the factor on q·k: the configuration's, or else the scheme's."""
        return scheme.scale(self.head_dim) if self.scale is None else self.scale

    def join_heads(self, out_BHSK: Float[Tensor, "B H S Kv"]) -> Float[Tensor, "B S D"]:
        """Join the heads and apply the output projection: [B, H, S, Kv] to [B, S, D]."""
        return self.out(out_BHSK.transpose(1, 2).flatten(2))


class SelfAttention(AttentionLayer):
    """Attention of every token to the tokens of the same side."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.make_projection(config)
        self.q_norm = make_head_norm(config, self.q_width)
        self.k_norm = make_head_norm(config, self.kv_width)

    def forward(self, x_BSD: Float[Tensor, "B S D"], context: AttentionContext) -> Float[Tensor, "B S D"]:
        """Attend among the tokens of one side: [B, S, D] to [B, S, D]. Raises what ``attend_with_cache`` raises."""
        q_BHSK, k_BGSK, v_BGSK = self.project(x_BSD)
        return self.join_heads(self.attend_with_cache(x_BSD, q_BHSK, k_BGSK, v_BGSK, context))

    def make_projection(self, config: TransformerConfig) -> None:
        """Make the projection from which queries, keys and values come."""
        self.qkv = FusedLinear(config.d_model, (self.q_width, self.kv_width, self.kv_width), bias=config.attention_bias)

    def project(
        self, x_BSD: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B G S K"], Float[Tensor, "B G S Kv"]]:
        """Return queries [B, H, S, K], and keys and values [B, G, S, K], of tokens [B, S, D]."""
        q_BHSK, k_BGSK, v_BGSK = self.qkv.project_heads(x_BSD, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q_BHSK, k_BGSK = normalise_heads(q_BHSK, self.q_norm), normalise_heads(k_BGSK, self.k_norm)
        return q_BHSK, k_BGSK, v_BGSK

    def attend_with_cache(
        self,
        x_BSD: Float[Tensor, "B S D"],
        q_BHSK: Float[Tensor, "B H S K"],
        k_BGSK: Float[Tensor, "B G S K"],
        v_BGSK: Float[Tensor, "B G S Kv"],
        context: AttentionContext,
    ) -> Float[Tensor, "B H S Kv"]:
        """Update the KV cache, if there is one, and attend: queries [B, H, S, K] to [B, H, S, Kv].

        ``x_BSD`` is what queries and keys were projected from; only ``scheme.locate`` reads it. Raises PositionError
        for a cache that cannot serve the scheme, and for positions that the scheme does not take.
        """
        scheme, placement, cache, layer = context.scheme, context.placement, context.cache, context.layer
        q, k, v = q_BHSK, k_BGSK, v_BGSK
        if cache is not None:
            refuse_quantized_cache(scheme, cache, layer)
        if "locate" in scheme.active_hooks():
            past_BHTA = None if cache is None else read_coordinates(scheme, cache, layer, self.head_dim)
            # An offloaded cache may hold them on another device until it is asked for its keys.
            past_BHTA = None if past_BHTA is None else past_BHTA.to(x_BSD.device)
            located_BHSA = scheme.locate(x_BSD, placement.qpos, past_BHTA)
            if located_BHSA is not None:
                placement = dataclasses.replace(placement, qpos=located_BHSA, kpos=located_BHSA)
        if cache is None:
            return self.attend_heads(scheme, q, k, v, placement)
        if not may_share_keys(scheme):  # the keys of a group differ once they are rotated, or stand elsewhere
            k, v = share_heads(q.shape[1], k), share_heads(q.shape[1], v)
        rotated, stores_positions = scheme.declares.cache == "rotated", needs_stored_positions(scheme)
        if rotated:
            q, k = scheme.rotate(q, k, placement.qpos, placement.kpos)
            v = scheme.rotate_values(v, placement.qpos, placement.kpos)
        stored = append_positions(k, placement.kpos) if stores_positions else k
        stored, v = cache.update(stored, v, layer)
        mask_BHSM, length = placement.mask_BHSM, placement.length
        if keeps_window(cache, layer):
            mask_BHSM = None if mask_BHSM is None else mask_BHSM[..., -stored.shape[2] :]
        elif length is not None:
            refuse_sliding_cache(stored, length)
            stored, v = stored[:, :, :length], v[:, :, :length]
        if stores_positions:
            k, kpos = split_positions(stored, q.shape[-1], placement.kpos)
        else:
            # No hook that is still to be called reads the positions of keys, so that zeros [B, T] can stand for them.
            k, kpos = stored, placement.qpos.new_zeros(()).expand(len(v), v.shape[2])
        placement = dataclasses.replace(placement, kpos=kpos, mask_BHSM=mask_BHSM)
        return self.attend_heads(scheme, q, k, v, placement, rotated=rotated)


class CrossAttention(AttentionLayer):
    """Attention of every target token to the source, whose keys and values are computed once where there is a cache."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.q = FusedLinear(config.d_model, (self.q_width,), bias=config.attention_bias)
        self.kv = FusedLinear(config.d_model, (self.kv_width, self.kv_width), bias=config.attention_bias)

    def forward(
        self,
        x_BSD: Float[Tensor, "B S D"],
        source_BTD: Float[Tensor, "B T D"],
        context: AttentionContext,
    ) -> Float[Tensor, "B S D"]:
        """Attend from target tokens [B, S, D] to the source's states [B, T, D]: [B, S, D].

        Raises PositionError for positions that the scheme does not take.
        """
        (q_BHSK,) = self.q.project_heads(x_BSD, self.head_dim)
        k_BGTK, v_BGTK = self.project_source(source_BTD, context.cache, context.layer, q_BHSK.device)
        return self.join_heads(self.attend_heads(context.scheme, q_BHSK, k_BGTK, v_BGTK, context.placement))

    def project_source(
        self, source_BTD: Float[Tensor, "B T D"], cache: KVCache | None, layer: int, device: torch.device
    ) -> tuple[Float[Tensor, "B G T K"], Float[Tensor, "B G T Kv"]]:
        """Return keys and values of the source, [B, G, T, K] each: computed and cached, or read from the cache.

        An offloaded cache may hold them on another device than ``device``, where they are needed.
        """
        if cache is not None and cache.get_seq_length(layer):
            return cache.layers[layer].keys.to(device), cache.layers[layer].values.to(device)
        k_BGTK, v_BGTK = self.kv.project_heads(source_BTD, self.head_dim)
        return (k_BGTK, v_BGTK) if cache is None else cache.update(k_BGTK, v_BGTK, layer)


LATENT_EPS = 1e-6
"""Added to the mean square in the norms of compressed states, whatever the other norms add (DeepSeek-V2's code)."""


class LatentAttention(SelfAttention):
    """Self-attention with compressed keys and values (MLA; DeepSeek-AI 2024, "DeepSeek-V2", equations 9 to 19).

    c = norm(W_down x), and each head's key and value are W_up c. The first ``shared_key_dim`` channels of all keys are
    projected from x itself and are the same in all heads: if a scheme rotates these channels alone, W_up need not be
    rotated. DeepSeek puts these channels last.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.shared_key_dim, self.latent_width = config.shared_key_dim, config.latent_width or 0
        self.value_dim = config.value_dim or self.head_dim
        bias, query_width = config.attention_bias, config.latent_query_width
        self.q_down = None if query_width is None else nn.Linear(config.d_model, query_width, bias=bias)
        self.q_latent_norm = None if query_width is None else nn.RMSNorm(query_width, eps=LATENT_EPS)
        self.q_up = nn.Linear(query_width or config.d_model, self.q_width, bias=False)
        widths = (self.latent_width, self.shared_key_dim) if self.shared_key_dim else (self.latent_width,)
        self.kv_down = FusedLinear(config.d_model, widths, bias=bias)
        self.kv_latent_norm = nn.RMSNorm(self.latent_width, eps=LATENT_EPS)
        self.kv_head_widths = (self.head_dim - self.shared_key_dim, self.value_dim)
        self.kv_up = nn.Linear(self.latent_width, config.num_heads * sum(self.kv_head_widths), bias=False)
        self.out = nn.Linear(config.num_heads * self.value_dim, config.d_model, bias=bias)

    def make_projection(self, config: TransformerConfig) -> None:
        """Make no fused projection: queries, keys and values are not projected from the same input."""

    def project(
        self, x_BSD: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"], Float[Tensor, "B H S Kv"]]:
        """Return queries and keys [B, H, S, K] and values [B, H, S, value_dim] of tokens [B, S, D]."""
        compressed = x_BSD
        if self.q_down is not None and self.q_latent_norm is not None:
            compressed = self.q_latent_norm(self.q_down(x_BSD))
        q_BHSK = self.q_up(compressed).unflatten(2, (-1, self.head_dim)).transpose(1, 2)
        latent_BSC, shared_BSK = self.kv_down(x_BSD).split_with_sizes([self.latent_width, self.shared_key_dim], -1)
        expanded_BSE = self.kv_up(self.kv_latent_norm(latent_BSC))  # the keys' own channels and the values of all heads
        heads = expanded_BSE.unflatten(2, (q_BHSK.shape[1], -1)).transpose(1, 2)
        k_BHSK, v_BHSK = heads.split_with_sizes(list(self.kv_head_widths), -1)
        if self.shared_key_dim:
            k_BHSK = torch.cat([shared_BSK[:, None].expand(-1, q_BHSK.shape[1], -1, -1), k_BHSK], dim=-1)
        return q_BHSK, k_BHSK, v_BHSK
