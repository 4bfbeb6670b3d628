"""What a model adds at its input: the vectors of tokens and of positions, as they enter the first layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from clockhands.errors import CheckpointError
from clockhands.shapes import Float, Tensor


@dataclass(frozen=True)
class Tables:
    """What is added at the input: token rows (already scaled), position rows from the first token on, and the rest."""

    tokens_VD: Float[Tensor, "V D"]
    positions_ND: Float[Tensor, "N D"]
    segment_D: Float[Tensor, " D"]
    scale: float
    norm: nn.Module | None

    def __post_init__(self) -> None:
        """Raises CheckpointError for values that are no numbers: nothing that is measured of them would be one."""
        for what, rows in (("position", self.positions_ND), ("token", self.tokens_VD)):
            broken = ~rows.isfinite().all(dim=-1)
            if bool(broken.any()):
                row = int(broken.nonzero()[0])
                raise CheckpointError(
                    f"the {what} table holds NaN or infinite values (first in row {row}), so the model cannot be "
                    "inspected; its weights are damaged"
                )
