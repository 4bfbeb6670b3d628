"""The Universal Transformer's coordinates: where a token is, and how often it has been thought over."""

from __future__ import annotations

from typing import final

import torch

from clockhands.errors import refuse
from clockhands.options import Positive
from clockhands.schemes.frequencies import (
    Exponent,
    Layout,
    compute_cos_sin,
    compute_frequencies,
    lay_out_channels,
    take_axis,
    take_shared_row,
)
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors
from clockhands.shapes import Float, Tensor


@final
class Universal(Scheme):
    """The sinusoid of the position plus the sinusoid of the layer, for adding before every layer (Dehghani et al. 2019,
    equations 6 and 7). Only a model that adds the encoding again at every layer has a use for it.

    Args:
        width: d_model; even.
        layout: ``interleaved`` as in the paper, or ``half`` as in Tensor2Tensor.
        exponent: ``paper`` (2c/d) or ``tensor2tensor`` (c/(d/2 - 1)), which the released code uses.
        base: wavelengths run from 2π to base·2π.
        start: what the first token and the first layer count as: 1 in the paper, 0 in Tensor2Tensor.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Universal
        >>> Universal(width=2).encode(torch.tensor([[0, 1]]), layer=1)
        tensor([[[ 1.7508,  0.1242],
                 [ 1.8186, -0.8323]]])
    """

    equation = r"P^t(p, 2c) = \sin(p / b^{2c/d}) + \sin(t / b^{2c/d}), \quad 2c + 1 \text{ with } \cos"
    source = "Dehghani et al. 2019, equations 6 and 7"
    peers = ("tensor2tensor universal_transformer_util",)
    models = ("Universal Transformer",)

    def __init__(
        self,
        width: int,
        *,
        layout: Layout = "interleaved",
        exponent: Exponent = "paper",
        base: Positive = 10_000.0,
        start: int = 1,
    ) -> None:
        super().__init__()
        refuse(width % 2, f"universal pairs its channels and needs an even width; width is {width}")
        self.width, self.layout, self.exponent, self.start = width, layout, exponent, start
        self.base = base

    declares = Declares(real_valued=True)

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        pos_BS = take_shared_row(take_axis(pos, "universal"))
        # The layer counts as a position of its own axis, and both waves are added.
        step = torch.full((1, 1), layer + self.start, device=pos_BS.device)
        return (self._waves(pos_BS + self.start) + self._waves(step)).expand(pos.shape[0], -1, -1)

    def _waves(self, number_BS: Tensor) -> Float[Tensor, "B S P"]:
        # One spectrum for both axes: a layer turns the hands as a token does.
        omega_F = compute_frequencies(self.width, self.base, self.exponent, number_BS.device)
        return lay_out_channels(*compute_cos_sin(number_BS, omega_F), self.layout)
