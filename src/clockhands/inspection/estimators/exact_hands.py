"""Clock hands of computed sinusoids: read from pairs of columns that turn in equal steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from clockhands.inspection.estimators.column_pairs import list_pairings
from clockhands.inspection.estimators.matrix_statistics import fit_line
from clockhands.shapes import Float, Tensor


@dataclass(frozen=True)
class ExactHands:
    """The pairs of columns that rotate at constant speed, as ``read_period`` judges it.

    ``periods`` are in tokens per turn, ``orbits`` the rows of the table in each pair, ``pairs`` the numbers of its two
    columns; ``zero_pairs`` counts the pairs that are zero throughout.
    """

    periods: tuple[float, ...] = ()
    orbits: tuple[Float[Tensor, "N two"], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    zero_pairs: int = 0


def read_exact_hands(rows_ND: Float[Tensor, "N D"]) -> ExactHands:
    """Read the hands of a table of sinusoids that was computed; none unless every pair that is not zero is a hand.

    Of the two ways in which ``list_pairings`` pairs the columns, the first that gives hands is taken. No spectrum is
    searched, so that hands are read too which need many more rows for a turn than the table has.
    """
    if rows_ND.shape[1] % 2:
        return ExactHands()
    for pairs in list_pairings(rows_ND.shape[1]):
        nonzero = [pair for pair in pairs if bool(rows_ND[:, pair].any())]
        orbits = tuple(rows_ND[:, pair] for pair in nonzero)
        periods = [period for period in map(read_period, orbits) if period is not None]
        if nonzero and len(periods) == len(nonzero):
            return ExactHands(tuple(periods), orbits, tuple(nonzero), len(pairs) - len(nonzero))
    return ExactHands()


def read_period(orbit_N2: Float[Tensor, "N two"]) -> float | None:
    """Return the tokens per turn of a point that rotates around zero in equal steps; None for any other.

    Its distance from zero must vary by less than 0.1 % (standard deviation over mean), and its angle must be a straight
    line over the rows with R² above 0.9999.
    """
    radius = orbit_N2.norm(dim=-1)
    if float(radius.std()) >= 1e-3 * float(radius.mean()):
        return None
    angle = torch.atan2(orbit_N2[:, 1], orbit_N2[:, 0])
    steps = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
    slope, r2 = fit_line(torch.cat([angle[:1], angle[0] + steps.cumsum(0)]))
    return 2 * math.pi / abs(slope) if r2 > 0.9999 and slope != 0 else None
