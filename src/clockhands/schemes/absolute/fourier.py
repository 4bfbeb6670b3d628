"""Learnable Fourier features: random hands of any direction, read by a small network."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Count, Positive
from clockhands.schemes.frequencies import check_axes, choose_angle_dtype, take_shared_row
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors


@final
class LearnableFourier(Scheme):
    """W_2·GeLU(W_1·r), with r = [cos(W_r p); sin(W_r p)]/√F and every W learned (Li et al. 2021, equations 1 to 3).

    Args:
        width: d_model, or d_p where the encoding is concatenated.
        axes: coordinates of a position, mixed by W_r: distances are measured across axes, not along each.
        features: F, an even number: half as many frequencies.
        hidden: width of the hidden layer.
        gamma: W_r starts as N(0, γ^-2), so that similarity falls as a Gaussian of width γ.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import LearnableFourier
        >>> LearnableFourier(width=8).encode(torch.tensor([[0, 1, 2]])).shape
        torch.Size([1, 3, 8])
    """

    equation = r"e(p) = W_2 \, GeLU(W_1 r), \quad r = \tfrac{1}{\sqrt F} [\cos W_r p; \sin W_r p]"
    source = "Li et al. 2021, section 3"
    peers = ("willGuimont/learnable_fourier_positional_encoding",)

    def __init__(
        self, width: int, *, axes: Count = 1, features: Count = 64, hidden: Count = 32, gamma: Positive = 10.0
    ) -> None:
        super().__init__()
        refuse(features < 2 or features % 2, f"learnable-fourier needs an even number of features, not {features}")
        self.axes, self.gamma = axes, gamma
        self.frequency_FA = nn.Parameter(torch.empty(features // 2, axes))
        self.first, self.second = nn.Linear(features, hidden), nn.Linear(hidden, width)
        self.reset_parameters()

    @property
    def declares(self) -> Declares:
        return Declares(axes=self.axes, real_valued=True)

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        pos_BSA = take_shared_row(check_axes(pos, self.axes, "learnable-fourier"))
        dtype = choose_angle_dtype(pos.device)
        # W_r p in float64: of a large position the angle would lose its digits in float32.
        angle_BSF = pos_BSA.to(dtype) @ self.frequency_FA.to(dtype).T
        waves_BSF = torch.cat([angle_BSF.cos(), angle_BSF.sin()], dim=-1)
        # The mean square of F cosines and F sines is 1/2: divided by √(2F), the vector has the length 1/√2.
        read_BSF = (waves_BSF / math.sqrt(waves_BSF.shape[-1])).to(self.first.weight.dtype)
        pe_BSP = self.second(nn.functional.gelu(self.first(read_BSF)))
        return pe_BSP.expand(pos.shape[0], -1, -1)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.frequency_FA, std=1 / self.gamma)
        super().reset_parameters()
