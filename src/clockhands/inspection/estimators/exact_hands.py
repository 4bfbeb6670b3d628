"""Clock hands of sinusoids as they are computed: read from pairs of columns, with nothing estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from clockhands.inspection.estimators.intervals import linear_fit
from clockhands.shapes import Float, Tensor


@dataclass(frozen=True)
class ExactHands:
    """Pairs of columns that turn at exactly constant speed: their periods and orbits, and how many are zero."""

    periods: tuple[float, ...] = ()
    orbits: tuple[Float[Tensor, "T two"], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    zero: int = 0


def exact_hands(rows_PD: Float[Tensor, "P D"]) -> ExactHands:
    """The hands of sinusoids as they are computed, neighbours or halves paired; none unless every pair that is not zero
    is one. Nothing is estimated here, so that hands far slower than the table are read too."""
    width = rows_PD.shape[1] // 2
    if rows_PD.shape[1] % 2:
        return ExactHands()
    for pairs in ([(2 * i, 2 * i + 1) for i in range(width)], [(i, i + width) for i in range(width)]):
        lively = [pair for pair in pairs if bool(rows_PD[:, pair].any())]
        periods = [exact_period(rows_PD[:, pair]) for pair in lively]
        if lively and all(period is not None for period in periods):
            known = [period for period in periods if period is not None]
            return ExactHands(
                tuple(known), tuple(rows_PD[:, pair] for pair in lively), tuple(lively), width - len(lively)
            )
    return ExactHands()


def exact_period(orbit_T2: Float[Tensor, "T two"]) -> float | None:
    """Tokens per turn of a point that turns around zero with steps alike; None for any other."""
    radius = orbit_T2.norm(dim=-1)
    if float(radius.std()) >= 1e-3 * float(radius.mean()):
        return None
    angle = torch.atan2(orbit_T2[:, 1], orbit_T2[:, 0])
    turn = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
    slope, straightness = linear_fit(torch.cat([angle[:1], angle[0] + turn.cumsum(0)]))
    return 2 * math.pi / abs(slope) if straightness > 0.9999 and slope != 0 else None
