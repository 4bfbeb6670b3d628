"""Sinusoids of several coordinates: each axis turns the hands of its own share of the channels."""

from __future__ import annotations

from typing import final

import torch

from clockhands.errors import refuse
from clockhands.options import Count, Positive
from clockhands.schemes.frequencies import (
    Layout,
    check_axes,
    compute_cos_sin,
    compute_frequencies,
    lay_out_channels,
    take_shared_row,
)
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors
from clockhands.shapes import Float, Tensor


@final
class SinusoidalAxes(Scheme):
    """The sinusoids of every coordinate side by side, d/A channels each (Parmar et al. 2018; DETR).

    DETR's form (Carion et al. 2020, code): ``layout`` interleaved, ``start`` 1, positions (row, column); where it
    normalises, positions come from ``positions.normalise`` with scale 2π, and ``start`` is 0.

    Args:
        width: d_model, or d_p where the encoding is concatenated; divisible by 2·axes.
        axes: coordinates of a position.
        layout: within the share of an axis, ``interleaved`` or ``half``, as in ``sinusoidal``.
        base: wavelengths run from 2π to base·2π on every axis.
        start: what is added to every coordinate (DETR counts from 1).
        amplitude: factor of the whole encoding.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import SinusoidalAxes
        >>> SinusoidalAxes(width=4).encode(torch.tensor([[[0, 0], [0, 1]]]))
        tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
                 [0.0000, 1.0000, 0.8415, 0.5403]]])
    """

    equation = r"e(p) = [PE_{d/A}(p_1); \dots; PE_{d/A}(p_A)]"
    source = "Parmar et al. 2018, section 3.3; Carion et al. 2020, appendix A.4"
    peers = ("positional-encodings PositionalEncoding2D and 3D", "transformers DETR", "timm build_sincos2d_pos_embed")
    models = ("DETR", "MAE")

    def __init__(
        self,
        width: int,
        *,
        axes: Count = 2,
        layout: Layout = "interleaved",
        base: Positive = 10_000.0,
        start: float = 0.0,
        amplitude: float = 1.0,
    ) -> None:
        super().__init__()
        refuse(
            width % (2 * axes),
            f"sinusoidal-axes shares its channels out in pairs: width {width} is no multiple of 2 x {axes} axes",
        )
        self.base = base
        self.width, self.axes, self.layout, self.start, self.amplitude = width, axes, layout, start, amplitude

    @property
    def declares(self) -> Declares:
        return Declares(axes=self.axes, real_valued=True)

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        pos_BSA = check_axes(pos, self.axes, "sinusoidal-axes")
        shares = [self._encode_axis(take_shared_row(pos_BSA[..., axis])) for axis in range(self.axes)]
        # A row that all texts share was computed once, and is shown to each of them again.
        return (self.amplitude * torch.cat(shares, dim=-1)).expand(pos.shape[0], -1, -1)

    def _encode_axis(self, pos_BS: Tensor) -> Float[Tensor, "B S Pa"]:
        """Return the sinusoids of one coordinate in its share of the channels."""
        omega_F = compute_frequencies(self.width // self.axes, self.base, device=pos_BS.device)
        return lay_out_channels(*compute_cos_sin(pos_BS + self.start, omega_F), self.layout)
