"""Several projections of one input as one linear layer."""

from __future__ import annotations

from torch import nn

from clockhands.shapes import Float, Tensor

__all__ = ["FusedLinear"]


class FusedLinear(nn.Linear):
    """Several projections of one input in one matrix product; each is initialised as if it were a layer of its own.

    Args:
        in_features: width of the input.
        widths: width of each projection: its rows of the weight.
        bias: whether the projections have biases.
    """

    def __init__(self, in_features: int, widths: tuple[int, ...], bias: bool) -> None:
        super().__init__(in_features, sum(widths), bias=bias)
        self.widths = widths

    def project_heads(self, x_BSD: Float[Tensor, "B S D"], head_dim: int) -> tuple[Float[Tensor, "B _H S K"], ...]:
        """Project [B, S, D], and return each projection as [B, its heads, S, head_dim]."""
        fused_BSI = self(x_BSD)
        batch, length, _ = fused_BSI.shape
        heads_BHSK = fused_BSI.reshape(batch, length, -1, head_dim).transpose(1, 2)
        if len(self.widths) == 1:
            return (heads_BHSK,)
        return heads_BHSK.split_with_sizes([width // head_dim for width in self.widths], 1)
