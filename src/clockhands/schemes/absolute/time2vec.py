"""Time2Vec: hands whose speeds and starting angles are learned, and one that never comes round."""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Positive
from clockhands.schemes.frequencies import choose_angle_dtype, compute_frequencies, take_axis, take_shared_row
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors


@final
class Time2Vec(Scheme):
    """[ω_0·τ + φ_0, sin(ω_1·τ + φ_1), ...], all learned, for real-valued times (Kazemi et al. 2019, equation 1).

    mTAN's learned time embedding (Shukla & Marlin 2021) is this with ``start`` uniform; its fixed one is ``sinusoidal``
    with base 10 under the transform ``scaled`` with factor 1/48.

    Args:
        width: d_model, or d_p where the encoding is concatenated; at least 2.
        wave: the periodic function, ``sin`` or ``cos``.
        start: where ω and φ begin: ``geometric`` (the sinusoid's spectrum, φ = 0), ``normal`` (N(0, 1)) or ``uniform``
            (U(-1, 1), as a linear layer of one input starts).
        base: of the geometric start.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Time2Vec
        >>> Time2Vec(width=8).encode(torch.tensor([[0.5, 2.25]])).shape
        torch.Size([1, 2, 8])
    """

    equation = r"e(\tau)_0 = \omega_0 \tau + \varphi_0, \quad e(\tau)_c = \sin(\omega_c \tau + \varphi_c)"
    source = "Kazemi et al. 2019, equation 1"
    peers = ("mTAN learn_time_embedding", "andrewrgarcia/time2vec")
    models = ("mTAN",)

    def __init__(
        self,
        width: int,
        *,
        wave: Literal["sin", "cos"] = "sin",
        start: Literal["geometric", "normal", "uniform"] = "geometric",
        base: Positive = 10_000.0,
    ) -> None:
        super().__init__()
        refuse(width < 2, f"time2vec needs a width of at least 2; width is {width}")
        self.wave, self.start, self.base = wave, start, base
        self.omega_P = nn.Parameter(torch.empty(width))
        self.phase_P = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    declares = Declares(real_valued=True)

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        pos_BS = take_shared_row(take_axis(pos, "time2vec"))
        dtype = choose_angle_dtype(pos_BS.device)
        angle_BSP = pos_BS.to(dtype)[..., None] * self.omega_P.to(dtype) + self.phase_P.to(dtype)
        # The first channel stays a straight line, by which time is told beyond all periods.
        waves_BSF = angle_BSP[..., 1:].sin() if self.wave == "sin" else angle_BSP[..., 1:].cos()
        return torch.cat([angle_BSP[..., :1], waves_BSF], dim=-1).float().expand(pos.shape[0], -1, -1)

    def reset_parameters(self) -> None:
        if self.start == "geometric":
            # The linear channel comes first and gets the lowest frequency; the others run from high to low.
            omega_P = compute_frequencies(2 * len(self.omega_P), self.base, device=self.omega_P.device)
            self.omega_P.copy_(omega_P.roll(1))
            self.phase_P.zero_()
        for parameter in (self.omega_P, self.phase_P):
            if self.start == "normal":
                nn.init.normal_(parameter)
            elif self.start == "uniform":
                nn.init.uniform_(parameter, -1, 1)
