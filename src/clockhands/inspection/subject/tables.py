"""What a model adds at its input: the vectors of tokens and of positions, as they enter the first layer."""

from __future__ import annotations

from dataclasses import dataclass

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
