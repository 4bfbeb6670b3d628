"""What chance alone gives has the variance and the correlation that it is defined by."""

from __future__ import annotations

import numpy as np
import pytest

from clockhands.comparison.null_draws import draw_null


def test_the_null_has_the_correlation_and_the_variance_of_differences_from_one_baseline() -> None:
    null = draw_null(5, 3, 100)
    assert np.corrcoef(null.means_BM.T) == pytest.approx(
        np.array([[1, 0.5, 0.5], [0.5, 1, 0.5], [0.5, 0.5, 1]]), abs=0.06
    )
    assert null.means_BM.var(axis=0) == pytest.approx(np.ones(3), abs=0.1)
    assert null.variances_BM.mean(axis=0) == pytest.approx(np.ones(3), abs=0.1)
