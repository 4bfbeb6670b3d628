"""One autoregression for all channels of a table."""

from __future__ import annotations

import numpy as np

from clockhands.inspection.estimators.wave_fit import Array


def burg(rows_nD: Array, order: int) -> Array:
    """The coefficients 1, a₁ … of one autoregression for all channels (Burg's method with pooled sums)."""
    ahead, back, found = rows_nD[1:], rows_nD[:-1], np.ones(1)
    for _ in range(order):
        power = float((ahead**2).sum() + (back**2).sum())
        reflection = -2 * float((ahead * back).sum()) / power if power > 0 else 0.0
        longer = np.append(found, 0.0)
        found = longer + reflection * longer[::-1]
        ahead, back = (ahead + reflection * back)[1:], (back + reflection * ahead)[:-1]
    return found
