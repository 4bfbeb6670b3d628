"""The position itself as a number: what everybody thinks of first."""

from __future__ import annotations

from typing import Literal, final

import numpy as np
import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import FromTwo, Seed
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors
from clockhands.shapes import Float, Tensor


@final
class Index(Scheme):
    """The index p, raw or normalised, as one channel, as the value of all channels, or along one direction.

    Args:
        width: d_model, or d_p where the encoding is concatenated.
        normalise: ``none`` (p), ``length`` (p/(n - 1) with n the length of the row: what a position means changes with
            the length, and token-by-token decoding is impossible; a row of one token gets 0) or ``maximum``
            (p/(max_length - 1)).
        max_length: what ``maximum`` divides by.
        form: ``channel`` (the first channel holds the number, the others hold 0), ``value`` (all channels hold it) or
            ``direction`` (the number times a unit vector).
        learned_direction: make that vector a parameter.
        seed: of the random direction.
        amplitude: factor of the whole encoding.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Index
        >>> Index(width=2, normalise="length").encode(torch.tensor([[0, 1, 2]]))
        tensor([[[0.0000, 0.0000],
                 [0.5000, 0.0000],
                 [1.0000, 0.0000]]])
    """

    equation = r"e(p) = a\,p\,u, \quad p \in \{p, \; p/(n-1), \; p/(L_{max}-1)\}"
    source = "folklore"
    peers = ()

    def __init__(
        self,
        width: int,
        *,
        normalise: Literal["none", "length", "maximum"] = "none",
        max_length: FromTwo = 512,
        form: Literal["channel", "value", "direction"] = "channel",
        learned_direction: bool = False,
        seed: Seed = 0,
        amplitude: float = 1.0,
    ) -> None:
        super().__init__()
        refuse(
            learned_direction and form != "direction",
            f"index.learned_direction needs form 'direction', and form is {form!r}",
        )
        self.width, self.form, self.normalise, self.max_length = width, form, normalise, max_length
        self.seed, self.amplitude = seed, amplitude
        self.direction_P = nn.Parameter(self._fixed_direction()) if learned_direction else None

    @property
    def declares(self) -> Declares:
        return Declares(real_valued=True, depends_on_length=self.normalise == "length")

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        # In float32: bfloat16 cannot tell 257 from 256.
        number_BS = take_axis(pos, "index").to(torch.float32)
        if self.normalise == "length":
            # p / (n - 1) with the row's own n; a row of one token, 0/0, counts as 0.
            number_BS = number_BS / number_BS.amax(dim=-1, keepdim=True).clamp(min=1)
        elif self.normalise == "maximum":
            number_BS = number_BS / (self.max_length - 1)
        direction_P = self._fixed_direction() if self.direction_P is None else self.direction_P
        return self.amplitude * number_BS[..., None] * direction_P.to(pos.device)

    def _fixed_direction(self) -> Float[Tensor, " P"]:
        if self.form == "value":
            return torch.ones(self.width)
        if self.form == "channel":
            # All of the number in the first channel.
            return torch.eye(1, self.width)[0]
        direction_P = torch.as_tensor(np.random.RandomState(self.seed).standard_normal(self.width)).float()
        return direction_P / direction_P.norm()

    def reset_parameters(self) -> None:
        if self.direction_P is not None:
            self.direction_P.copy_(self._fixed_direction())
