"""The position-wise feed-forward layer, and the activations that a configuration names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.model.config import TransformerConfig
from clockhands.model.fused_linear import FusedLinear
from clockhands.shapes import Float, Tensor

__all__ = ["ACTIVATIONS", "FeedForward"]


def _compute_clamped_silu(x: Tensor) -> Tensor:
    """Return x·σ(1.702 x) for x up to 7, and that of 7 beyond (gpt-oss's model code)."""
    x = x.clamp(max=CLAMP)
    return x * torch.sigmoid(1.702 * x)


def _keep(x: Tensor) -> Tensor:
    """Return x: a layer without an activation is linear."""
    return x


CLAMP = 7.0
"""The bound of the inputs of ``clamped-silu``."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "clamped-silu": _compute_clamped_silu,
    "identity": _keep,
}
"""The functions that ``TransformerConfig.activation`` names."""


class FeedForward(nn.Module):
    """W₂ act(W₁ x) (Vaswani et al. 2017, equation 2), or gated: W₂ (act(W_g x) * W₁ x) (Shazeer 2020).

    With the activation ``identity`` it is linear, or gated bilinear (Shazeer 2020, "Bilinear"). With ``clamped-silu``,
    W₁ x is clamped between -7 and 7 too, and 1 is added to it (gpt-oss).
    ``width``: the width inside; None: ``d_ff``.
    """

    def __init__(self, config: TransformerConfig, width: int | None = None) -> None:
        super().__init__()
        width = config.d_ff if width is None else width
        self.activation = ACTIVATIONS[config.activation]
        self.gated = config.gated
        self.clamps_values = config.gated and config.activation == "clamped-silu"
        widths = (width, width) if config.gated else (width,)
        self.up = FusedLinear(config.d_model, widths, bias=config.ffn_bias)
        self.down = nn.Linear(width, config.d_model, bias=config.ffn_bias)
        self.dropout = nn.Dropout(config.get_dropout("activation"))

    def forward(self, x_ND: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Compute the position-wise feed-forward layer: [..., D] to [..., D]."""
        x = self.up(x_ND)
        if self.gated:
            gate, x = x.chunk(2, dim=-1)
            x = x.clamp(-CLAMP, CLAMP) + 1 if self.clamps_values else x
            x = self.activation(gate) * x
        else:
            x = self.activation(x)
        # Outside training dropout does nothing, and a step of decoding is shorter without the call.
        return self.down(self.dropout(x) if self.training else x)
