"""Cross-attention: every target token attends to the source."""

from __future__ import annotations

import torch

from clockhands.model.attention import Attention, AttentionContext
from clockhands.model.config import TransformerConfig
from clockhands.model.fused_linear import FusedLinear
from clockhands.model.kv_cache import KVCache
from clockhands.shapes import Float, Tensor

__all__ = ["CrossAttention"]


class CrossAttention(Attention):
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
        k_BHTK, v_BHTK = self.project_source(source_BTD, context.cache, context.layer, q_BHSK.device)
        scheme, placement = context.scheme, context.placement
        return self.join_heads(self.attend_heads(scheme, q_BHSK, k_BHTK, v_BHTK, placement))

    def project_source(
        self, source_BTD: Float[Tensor, "B T D"], cache: KVCache | None, layer: int, device: torch.device
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H T Kv"]]:
        """Return keys and values of the source, [B, H, T, K] each: computed and cached, or read from the cache.

        An offloaded cache may hold them on another device than ``device``, where they are needed.
        """
        if cache is not None and cache.get_seq_length(layer):
            stored = cache.layers[layer]
            keys, values = stored.keys, stored.values
            if keys.device != device:
                keys, values = keys.to(device), values.to(device)
            return (keys, values) if self.group_size == 1 else (self.repeat_heads(keys), self.repeat_heads(values))
        k_BHTK, v_BHTK = map(self.repeat_heads, self.kv.project_heads(source_BTD, self.head_dim))
        return (k_BHTK, v_BHTK) if cache is None else self.update_cache(cache, layer, k_BHTK, v_BHTK)
