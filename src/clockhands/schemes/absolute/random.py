"""A fixed random vector for every position: as easy to tell apart as sinusoids, but without their order."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, final

import numpy as np
import torch

from clockhands.errors import refuse
from clockhands.options import Count, Seed
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.position_checks import read_index
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors

Rows = Literal["gaussian", "shuffled"]
MOST_NUMBERS = 2**36
"""Numbers of the largest table; in float64, as it is made, they take 512 GiB."""


@lru_cache(maxsize=8)
def _make_random_table(rows: Rows, max_length: int, width: int, seed: int) -> np.ndarray:
    """Make the table [L, P], float32.

    It is the same on every platform for the same arguments (NumPy's frozen RandomState).
    """
    stream = np.random.RandomState(seed)
    if rows == "gaussian":
        # Of variance 1/2, as sines and cosines have.
        return (stream.standard_normal((max_length, width)) * 0.5**0.5).astype(np.float32)
    # Sinusoids of shuffled positions: the same vectors, whose neighbours are no neighbours.
    order_L = stream.permutation(max_length)
    angle_LF = order_L[:, None] * 10_000.0 ** (-2 * np.arange(width // 2) / width)
    return np.stack([np.sin(angle_LF), np.cos(angle_LF)], axis=-1).reshape(max_length, width).astype(np.float32)


@final
class RandomVectors(Scheme):
    """Fixed random vectors, the control for what the sinusoid's form contributes beyond telling positions apart.

    Args:
        width: d_model, or d_p where the encoding is concatenated.
        rows: ``gaussian`` (independent N(0, 1/2) channels: the sinusoid's mean square) or ``shuffled`` (the rows of the
            sinusoidal table in a random order: the same vectors and norms, but neighbours are no longer alike).
        max_length: number of positions.
        beyond: what happens to position ``max_length`` and later: ``raise`` or ``clamp`` to the last.
        seed: of the vectors or of the order.
        amplitude: factor of the whole encoding.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import RandomVectors
        >>> RandomVectors(width=2).encode(torch.tensor([[0, 1]]))
        tensor([[[1.2474, 0.2830],
                 [0.6921, 1.5846]]])
    """

    equation = r"e(p) = a\,R_p, \quad R_{pc} \sim N(0, 1/2) \text{ fixed}"
    source = "control experiment"
    peers = ()

    def __init__(
        self,
        width: int,
        *,
        rows: Rows = "gaussian",
        max_length: Count = 1024,
        beyond: Literal["raise", "clamp"] = "raise",
        seed: Seed = 0,
        amplitude: float = 1.0,
    ) -> None:
        super().__init__()
        refuse(rows == "shuffled" and width % 2, f"shuffled rows of sinusoids need an even width; width is {width}")
        refuse(max_length * width > MOST_NUMBERS, f"max_length is {max_length:,}: its table would fit no memory")
        self.width, self.rows, self.max_length, self.beyond = width, rows, max_length, beyond
        self.seed, self.amplitude = seed, amplitude

    @property
    def declares(self) -> Declares:
        return Declares(max_length=self.max_length, beyond=self.beyond)

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        pos_BS = read_index(take_axis(pos, "random"), self.max_length, "random", self.beyond)
        table_LP = torch.as_tensor(
            _make_random_table(self.rows, self.max_length, self.width, self.seed), device=pos_BS.device
        )
        return self.amplitude * table_LP[pos_BS]
