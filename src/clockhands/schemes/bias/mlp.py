"""Biases that a small network computes from the distance."""

from __future__ import annotations

from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.errors import ConfigError
from clockhands.schemes.base import Declares, DistanceBias
from clockhands.shapes import Float, Num, Tensor

FURTHEST = 1e6


class Perceptron(nn.Module):
    """Linear layers with an activation between them, at least in float32 whatever type the weights have: a distance of
    257 does not exist in bfloat16."""

    def __init__(self, *widths: int, activation: type[nn.Module] = nn.SiLU, last_bias: bool = True) -> None:
        super().__init__()
        count = len(widths) - 1
        self.layers = nn.ModuleList(
            nn.Linear(a, b, bias=last_bias or at < count - 1) for at, (a, b) in enumerate(pairwise(widths))
        )
        self.activation = activation()

    def linears(self) -> list[nn.Linear]:
        """The layers in order."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def reset_parameters(self) -> None:
        """PyTorch's own draw for linear layers."""
        for layer in self.linears():
            layer.reset_parameters()

    def forward(self, x: Float[Tensor, "*any I"]) -> Float[Tensor, "*any O"]:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        for at, layer in enumerate(self.linears()):
            x = self.activation(x) if at else x
            x = F.linear(x, layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype))
        return x


def by_pieces(mlp: Perceptron, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any O"]:
    """A network 1 → hidden → O with ReLU, read as what it is: straight pieces between the points where a hidden unit
    begins or ends. A pair of positions then costs O products in place of hidden·(O + 1).
    """
    first, last = mlp.linears()
    weight_F, bias_F, out_OF = first.weight[:, 0].to(x.dtype), first.bias.to(x.dtype), last.weight.to(x.dtype)
    with torch.no_grad():
        bends_F = (-bias_F / weight_F).nan_to_num(FURTHEST).clamp(-FURTHEST, FURTHEST).sort().values
        ends = F.pad(F.pad(bends_F, (1, 0), value=-2 * FURTHEST), (0, 1), value=2 * FURTHEST)
        middle_R1 = (ends[1:, None] + ends[:-1, None]) / 2
        awake_RF = (weight_F * middle_R1 + bias_F > 0).to(x.dtype)
    slope_RO, start_RO = (awake_RF * weight_F) @ out_OF.T, (awake_RF * bias_F) @ out_OF.T + last.bias.to(x.dtype)
    piece = torch.bucketize(x.detach(), bends_F)
    slope, start = F.embedding(piece, torch.cat([slope_RO, start_RO], dim=-1)).chunk(2, dim=-1)
    return torch.addcmul(start, slope, x[..., None])


@final
class DynamicPositionBias(DistanceBias):
    """A network from the distance to one number for each head (CrossFormer, Wang et al. 2022, section 3.3; in one
    dimension as in x-transformers), shared by the layers.

    Args:
        num_heads: H.
        hidden: width of the hidden layers.
        depth: how many there are.
        log_distance: feed sign(r)·ln(1 + |r|) instead of r = i - j.
    """

    equation = r"\ell_{ij} \mathrel{+}= \mathrm{MLP}_h(i - j)"
    source = "Wang et al. 2022 (CrossFormer), section 3.3"
    peers = ("x-transformers DynamicPositionBias",)

    def __init__(self, num_heads: int, *, hidden: int = 64, depth: int = 2, log_distance: bool = False) -> None:
        super().__init__()
        if depth < 1 or hidden < 1:
            raise ConfigError([f"{depth} hidden layers of width {hidden}; at least 1 of each is needed"], "dynamic")
        self.log_distance = log_distance
        self.mlp = Perceptron(1, *[hidden] * depth, num_heads)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """PyTorch's own draw for linear layers."""
        self.mlp.reset_parameters()

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, real_valued=True)

    def kernel(self, distance_R: Num[Tensor, " R"]) -> Float[Tensor, "H R"]:
        far_R = distance_R.float()
        if self.log_distance:
            far_R = far_R.sign() * torch.log1p(far_R.abs())
        return self.mlp(far_R[:, None]).T
