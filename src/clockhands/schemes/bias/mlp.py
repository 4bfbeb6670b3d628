"""Biases that a small network computes from the distance."""

from __future__ import annotations

from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.options import Count
from clockhands.schemes.distance import Curves, DistanceBias, Distances
from clockhands.schemes.position_checks import can_read
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Float, Tensor


class Perceptron(nn.Module):
    """Linear layers with an activation between them, computed in float32 at least.

    A distance of 257 does not exist in bfloat16, so the weights are raised and the input is never lowered.
    """

    def __init__(self, *widths: int, activation: type[nn.Module] = nn.SiLU, last_bias: bool = True) -> None:
        super().__init__()
        count = len(widths) - 1
        self.layers = nn.ModuleList(
            nn.Linear(a, b, bias=last_bias or at < count - 1) for at, (a, b) in enumerate(pairwise(widths))
        )
        self.activation = activation()

    def linears(self) -> list[nn.Linear]:
        """Return the linear layers in order."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def reset_parameters(self) -> None:
        """Draw the weights as PyTorch draws linear layers."""
        for layer in self.linears():
            layer.reset_parameters()

    def forward(self, x: Float[Tensor, "*any I"]) -> Float[Tensor, "*any O"]:
        """Compute the output [..., O] of inputs [..., I], in float32 at least."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        for at, layer in enumerate(self.linears()):
            x = self.activation(x) if at else x
            x = F.linear(x, layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype))
        return x

    def compute_columns(self, x_IN: Float[Tensor, "*any I N"]) -> Float[Tensor, "*any O N"]:
        """Compute the outputs of inputs that are columns: [..., I, N] to [..., O, N], in float32 at least."""
        x = x_IN.to(torch.promote_types(x_IN.dtype, torch.float32))
        for at, layer in enumerate(self.linears()):
            x = self.activation(x) if at else x
            # W·X of inputs that are columns: no axis has to be moved, and so no copy is made.
            x = layer.weight.to(x.dtype) @ x
            x = x if layer.bias is None else x + layer.bias.to(x.dtype)[:, None]
        return x


def evaluate_piecewise(mlp: Perceptron, x: Float[Tensor, "*any"]) -> Float[Tensor, "O ..."]:
    """Compute a network 1 → hidden → O with ReLU at every number of ``x``: [O, ...].

    The network is linear between the points at which a hidden unit becomes positive. Units that are positive at all
    numbers are summed to one line, and units that are positive at none are left out; only the others are computed at
    every number.
    """
    first, last = mlp.linears()
    weight_F, bias_F, out_OF = first.weight[:, 0].to(x.dtype), first.bias.to(x.dtype), last.weight.to(x.dtype)
    start_O = last.bias.to(x.dtype)
    if can_read(x):
        with torch.no_grad():
            # A ReLU bends where its argument changes its sign. Outside the data it is 0 everywhere or a straight line.
            ends_2F = weight_F * torch.stack(x.aminmax())[:, None] + bias_F
            bends_F, straight_F = ends_2F.prod(0) <= 0, (ends_2F > 0).all(0)
        # All straight ones are one line; only those that bend are computed for each x.
        slope_O = out_OF[:, straight_F] @ weight_F[straight_F]
        start_O = start_O + out_OF[:, straight_F] @ bias_F[straight_F]
        line = torch.addcmul(start_O[:, None], slope_O[:, None], x.reshape(1, -1))
        weight_F, bias_F, out_OF = weight_F[bends_F], bias_F[bends_F], out_OF[:, bends_F]
    else:
        line = start_O[:, None]
    hidden_FR = torch.addmm(bias_F[:, None], weight_F[:, None], x.reshape(1, -1)).relu_()
    return torch.addmm(line, out_OF, hidden_FR).unflatten(1, x.shape)


@final
class DynamicPositionBias(DistanceBias):
    """A network from the distance to one number for each head (CrossFormer, Wang et al. 2022, section 3.3; in one
    dimension as in x-transformers), shared by the layers.

    Args:
        num_heads: H.
        hidden: width of the hidden layers.
        depth: how many there are.
        log_distance: feed sign(r)·ln(1 + |r|) instead of r = i - j.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import DynamicPositionBias
        >>> DynamicPositionBias(num_heads=2).compute_curve(torch.arange(3)).shape
        torch.Size([2, 3])
    """

    equation = r"\ell_{ij} \mathrel{+}= \mathrm{MLP}_h(i - j)"
    source = "Wang et al. 2022 (CrossFormer), section 3.3"
    peers = ("x-transformers DynamicPositionBias",)
    models = ("CrossFormer",)

    def __init__(self, num_heads: int, *, hidden: Count = 64, depth: Count = 2, log_distance: bool = False) -> None:
        super().__init__()
        self.log_distance = log_distance
        self.mlp = Perceptron(1, *[hidden] * depth, num_heads)

    declares = Declares(translation_invariant=True, real_valued=True)

    def compute_curve(self, distance_R: Distances) -> Curves:
        far_R = distance_R.float()
        if self.log_distance:
            # Far distances count by their logarithm, with their sign.
            far_R = far_R.sign() * torch.log1p(far_R.abs())
        return self.mlp(far_R[:, None]).T
