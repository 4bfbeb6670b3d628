"""One autoregression for all channels of a table."""

from __future__ import annotations

import numpy as np

from clockhands.inspection.estimators.wave_fit import Array


def fit_autoregression(rows: Array, order: int) -> Array:
    """Fit one autoregression Σ_j a_j x_(t−j) = noise to all D channels of a table, by Burg's method.

    The sums of squared forward and backward prediction errors are pooled over the channels (Burg 1975; Kay 1988,
    section 7.5).

    Args:
        rows: the table, [N, D], of mean zero.
        order: how many earlier rows predict a row.

    Returns:
        The coefficients 1, a₁ … a_order: [order + 1].
    """
    forward, backward, coefficients = rows[1:], rows[:-1], np.ones(1)
    for _ in range(order):
        power = float((forward**2).sum() + (backward**2).sum())
        reflection = -2 * float((forward * backward).sum()) / power if power > 0 else 0.0
        padded = np.append(coefficients, 0.0)
        coefficients = padded + reflection * padded[::-1]  # the Levinson recursion
        forward, backward = (forward + reflection * backward)[1:], (backward + reflection * forward)[:-1]
    return coefficients
