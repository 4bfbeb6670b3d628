"""The position in binary digits: square waves where the sinusoid has round ones."""

from __future__ import annotations

from typing import Literal, final

import torch

from clockhands.errors import refuse
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.position_checks import read_index
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors


@final
class Binary(Scheme):
    """Channel c holds digit c mod ``digits`` of the position, the lowest first.

    Args:
        width: d_model, or d_p where the encoding is concatenated; at least ``digits``.
        digits: positions from 0 to 2^digits - 1 can be told apart; others are refused.
        values: ``signed`` (-1 and 1) or ``unsigned`` (0 and 1).
        amplitude: factor of the whole encoding.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Binary
        >>> Binary(width=4, digits=4, values="unsigned").encode(torch.tensor([[5]]))
        tensor([[[1., 0., 1., 0.]]])
    """

    equation = r"e(p)_c = 2 \left(\lfloor p / 2^{c \bmod n} \rfloor \bmod 2\right) - 1"
    source = "folklore: the discrete clock that the sinusoid smooths"
    peers = ()

    def __init__(
        self,
        width: int,
        *,
        digits: int = 16,
        values: Literal["signed", "unsigned"] = "signed",
        amplitude: float = 1.0,
    ) -> None:
        super().__init__()
        refuse(
            not 1 <= digits <= min(width, 62),
            f"binary.digits is {digits}, but must be between 1 and the width, which is {width} (62 at most)",
        )
        self.width, self.digits, self.digit_values, self.amplitude = width, digits, values, amplitude

    @property
    def declares(self) -> Declares:
        return Declares(max_length=2**self.digits, beyond="raise")

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        pos_BS = read_index(take_axis(pos, "binary"), 2**self.digits, "binary", option="digits")
        # Channels beyond the digits repeat them.
        place_P = torch.arange(self.width, device=pos_BS.device) % self.digits
        # Shifted right by its place, a digit is the last bit.
        digit_BSP = (pos_BS.long()[..., None] >> place_P).bitwise_and(1).float()
        return self.amplitude * (2 * digit_BSP - 1 if self.digit_values == "signed" else digit_BSP)
