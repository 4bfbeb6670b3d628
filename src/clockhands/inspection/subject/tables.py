"""What a model adds at its input: the vectors of tokens and of positions, as they enter the first layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from clockhands.errors import CheckpointError
from clockhands.shapes import Float, Tensor


@dataclass(frozen=True)
class Tables:
    """The vectors that a model adds at its input, in float32 on the CPU.

    ``tokens_VD`` holds the vector of every token, with its factor ``scale`` in it; ``positions_ND`` those of positions
    0, 1, 2 ...; ``segment_D`` is what is added to every token beside these two, such as BERT's segment vector. ``norm``
    is applied to the sum; None if nothing is. Raises CheckpointError for NaN or infinite values.
    """

    tokens_VD: Float[Tensor, "V D"]
    positions_ND: Float[Tensor, "N D"]
    segment_D: Float[Tensor, " D"]
    scale: float
    norm: nn.Module | None

    def __post_init__(self) -> None:
        for name, rows in (("position", self.positions_ND), ("token", self.tokens_VD)):
            broken = ~rows.isfinite().all(dim=-1)
            if bool(broken.any()):
                row = int(broken.nonzero()[0])
                raise CheckpointError(
                    f"the {name} table holds NaN or infinite values (first in row {row}), so the model cannot be "
                    "inspected; its weights are damaged"
                )


def pad_side_by_side(
    tokens_VE: Float[Tensor, "V E"], positions_NP: Float[Tensor, "N P"]
) -> tuple[Float[Tensor, "V D"], Float[Tensor, "N D"]]:
    """Return tokens with zeros in the channels of positions, and positions with zeros in those of tokens."""
    zeros_VP = tokens_VE.new_zeros(len(tokens_VE), positions_NP.shape[1])
    zeros_NE = positions_NP.new_zeros(len(positions_NP), tokens_VE.shape[1])
    return torch.cat([tokens_VE, zeros_VP], dim=-1), torch.cat([zeros_NE, positions_NP], dim=-1)
