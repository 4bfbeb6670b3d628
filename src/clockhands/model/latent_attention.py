"""Multi-head latent attention: keys and values of all heads come from one compressed state of a token.

Axes beside those of ``shapes``: C channels of the compressed state, I channels of one head's key and value together.
"""

from __future__ import annotations

import torch
from torch import nn

from clockhands.model.attention import SelfAttention
from clockhands.model.config import TransformerConfig
from clockhands.model.fused_linear import FusedLinear
from clockhands.shapes import Float, Tensor

__all__ = ["LatentAttention"]

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
        heads_BHSI = self.kv_up(self.kv_latent_norm(latent_BSC)).unflatten(2, (q_BHSK.shape[1], -1)).transpose(1, 2)
        k_BHSK, v_BHSK = heads_BHSI.split_with_sizes(list(self.kv_head_widths), -1)
        if self.shared_key_dim:
            k_BHSK = torch.cat([shared_BSK[:, None].expand(-1, q_BHSK.shape[1], -1, -1), k_BHSK], dim=-1)
        return q_BHSK, k_BHSK, v_BHSK
