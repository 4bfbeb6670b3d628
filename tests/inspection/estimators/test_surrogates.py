"""Surrogates are as smooth as what they are drawn from, and hold no line."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from clockhands.inspection.estimators.autoregression import fit_autoregression
from clockhands.inspection.estimators.surrogates import (
    MOST_COMPONENTS,
    SURROGATES,
    _draw_autoregression,
    _draw_phases,
    measure_surrogates,
    project_on_components,
)


def _smooth(rows: int = 256, channels: int = 6) -> np.ndarray:
    noise = np.random.default_rng(0).standard_normal((rows + 100, channels))
    return lfilter([1.0], [1.0, -0.9], noise, axis=0)[100:]


def test_random_phases_keep_the_spectrum_of_every_component() -> None:
    rows = _smooth()
    drawn = next(_draw_phases(rows, np.random.default_rng(1)))
    assert np.abs(np.fft.rfft(drawn, axis=0))[1:-1] == pytest.approx(np.abs(np.fft.rfft(rows, axis=0))[1:-1])
    assert abs(np.corrcoef(rows[:, 0], drawn[:, 0])[0, 1]) < 0.5, "but not the rows"


def test_an_autoregression_is_as_smooth_as_the_rows() -> None:
    sizes = np.array([1, 2, 4, 8, 16, 32])
    drawn = next(_draw_autoregression(_smooth(rows=2000) * sizes, np.random.default_rng(1)))
    assert fit_autoregression(drawn, 1)[1] == pytest.approx(-0.9, abs=0.05)
    assert drawn.std(0) / drawn.std(0)[0] == pytest.approx(sizes, rel=0.35), "and as large in every channel"


def test_there_are_as_many_of_each_kind_and_their_lines_agree_no_better_than_noise() -> None:
    agreements = list(measure_surrogates(_smooth(), np.random.default_rng(0)))
    assert len(agreements) == 2 * SURROGATES
    assert 0.2 < float(np.mean([found.mean() for found in agreements])) < 0.8
    assert max(float(found.max()) for found in agreements) <= 1


def test_components_rebuild_rows_and_are_orthonormal() -> None:
    rows = _smooth(channels=5) @ np.random.default_rng(2).standard_normal((5, 300))
    coordinates, components = project_on_components(rows)
    assert coordinates.shape[1] == 5 <= MOST_COMPONENTS
    assert coordinates @ components == pytest.approx(rows, abs=1e-8)
    assert components @ components.T == pytest.approx(np.eye(5), abs=1e-8)
