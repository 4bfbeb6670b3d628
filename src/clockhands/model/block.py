"""One layer: attention, cross-attention in an encoder-decoder, feed-forward; each in a residual connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import nn

from clockhands.model.attention import AttentionContext, CrossAttention, FusedLinear, SelfAttention
from clockhands.model.config import Side, TransformerConfig
from clockhands.model.input import make_norm
from clockhands.shapes import Float, Tensor

__all__ = ["ACTIVATIONS", "Block", "FeedForward", "ResidualConnection"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """W₂ act(W₁ x) (Vaswani et al. 2017, equation 2), or gated: W₂ (act(W_g x) * W₁ x) (Shazeer 2020)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.gated = config.gated
        parts = (config.d_ff, config.d_ff) if config.gated else (config.d_ff,)
        self.up = FusedLinear(config.d_model, parts, bias=config.ffn_bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.ffn_bias)
        self.dropout = nn.Dropout(config.rate("activation"))

    def forward(self, x_BSD: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Compute the position-wise feed-forward layer: [B, S, D] to [B, S, D]."""
        x = self.up(x_BSD)
        if self.gated:
            gate, x = x.chunk(2, dim=-1)
            x = self.activation(gate) * x
        else:
            x = self.activation(x)
        # Without the call, a step of decoding is shorter; outside training dropout does nothing.
        return self.down(self.dropout(x) if self.training else x)


class ResidualConnection(nn.Module):
    """The residual connection around a sublayer f, with its norm.

    It is norm(x + f(x)), or x + f(norm(x)) with ``pre``; without ``residual`` the same without x.
    """

    def __init__(self, config: TransformerConfig, dropout: float) -> None:
        super().__init__()
        self.pre, self.residual = config.norm == "pre", config.residual
        self.norm = make_norm(config)
        self.dropout = nn.Dropout(dropout)

    def apply_sublayer(self, x_BSD: Float[Tensor, "B S D"], f: Callable[[Tensor], Tensor]) -> Float[Tensor, "B S D"]:
        """Return dropout(f(norm(x))) with ``pre``, else dropout(f(x)): [B, S, D], without the residual connection."""
        y_BSD = f(self.norm(x_BSD) if self.pre else x_BSD)
        return self.dropout(y_BSD) if self.training else y_BSD

    def forward(self, x_BSD: Float[Tensor, "B S D"], f: Callable[[Tensor], Tensor]) -> Float[Tensor, "B S D"]:
        """Compute the sublayer ``f`` inside its residual connection and norm: [B, S, D] to [B, S, D]."""
        y = self.apply_sublayer(x_BSD, f)
        y = x_BSD + y if self.residual else y
        return y if self.pre else self.norm(y)


class Block(nn.Module):
    """One layer of a stack."""

    def __init__(self, config: TransformerConfig, side: Side) -> None:
        super().__init__()
        self.parallel = config.parallel
        self.attention = SelfAttention(config)
        self.attention_residual = ResidualConnection(config, config.rate("residual"))
        self.cross: CrossAttention | None = None
        if config.has_cross_attention(side):
            self.cross = CrossAttention(config)
            self.cross_residual = ResidualConnection(config, config.rate("residual"))
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = ResidualConnection(config, config.rate("ffn-residual"))

    def forward(
        self,
        x_BSD: Float[Tensor, "B S D"],
        context: AttentionContext,
        source_BTD: Float[Tensor, "B T D"] | None = None,
        cross_context: AttentionContext | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Compute one layer: [B, S, D] to [B, S, D]. ``source_BTD`` and ``cross_context`` are for cross-attention."""
        if self.parallel:
            both = self.attention_residual.apply_sublayer(x_BSD, lambda h: self.attention(h, context))
            both = both + self.feed_forward_residual.apply_sublayer(x_BSD, self.feed_forward)
            return x_BSD + both if self.attention_residual.residual else both
        x = self.attention_residual(x_BSD, lambda h: self.attention(h, context))
        if self.cross is not None:
            x = self.cross_residual(x, lambda h: self.cross(h, source_BTD, cross_context))
        return self.feed_forward_residual(x, self.feed_forward)
