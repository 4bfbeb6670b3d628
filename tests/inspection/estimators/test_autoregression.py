"""Burg's method finds autoregressions that were planted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from clockhands.inspection.estimators.autoregression import fit_autoregression


@pytest.mark.parametrize("coefficients", [[1.0, -0.7], [1.0, -1.2, 0.5], [1.0, 0.4, 0.2, -0.3]])
def test_a_planted_autoregression_is_found(coefficients: list[float]) -> None:
    noise = np.random.default_rng(0).standard_normal((450, 30))
    rows = lfilter([1.0], coefficients, noise, axis=0)[50:]
    assert fit_autoregression(rows, len(coefficients) - 1) == pytest.approx(coefficients, abs=0.03)


def test_a_short_autoregression_has_no_higher_coefficients() -> None:
    noise = np.random.default_rng(0).standard_normal((450, 30))
    rows = lfilter([1.0], [1.0, -0.7], noise, axis=0)[50:]
    assert fit_autoregression(rows, 4) == pytest.approx([1, -0.7, 0, 0, 0], abs=0.03)


def test_white_noise_has_none_and_zeros_raise_nothing() -> None:
    assert fit_autoregression(np.random.default_rng(0).standard_normal((400, 30)), 2) == pytest.approx(
        [1, 0, 0], abs=0.03
    )
    assert fit_autoregression(np.zeros((20, 3)), 2).tolist() == [1, 0, 0]
