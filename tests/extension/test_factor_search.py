"""The search stays within its bounds and its number of evaluations, and finds what is there to be found."""

from __future__ import annotations

import numpy as np
import pytest

from clockhands.extension.factor_search import search_factors

PAIRS = 12
HIDDEN = np.linspace(1.0, 6.0, PAIRS)


@pytest.mark.parametrize("evaluations", [3, 64, 200])
def test_factors_are_found_within_the_evaluations(evaluations: int) -> None:
    calls = []

    def measure(factors_F: np.ndarray) -> float:
        assert (factors_F >= 1).all() and (factors_F <= 8).all() and (np.diff(factors_F) >= 0).all()
        calls.append(factors_F)
        return float((np.log(factors_F / HIDDEN) ** 2).mean())

    starts = [np.full(PAIRS, 4.0), np.ones(PAIRS)]
    best_F, loss = search_factors(measure, starts, 4.0, evaluations, seed=1)
    assert len(calls) == evaluations
    first = min(float((np.log(start / HIDDEN) ** 2).mean()) for start in starts)
    assert loss == measure(best_F) <= first
    assert evaluations < 64 or loss < first / 3
