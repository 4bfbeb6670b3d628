"""Waves that were planted are fitted, at their frequencies and amplitudes, and agree with themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from clockhands.inspection.estimators.hands import MOST_COMPONENTS, _project_on_components
from clockhands.inspection.estimators.waves import (
    SURROGATES,
    find_peak,
    fit_waves,
    make_times,
    make_trend,
    make_waves,
    measure_agreement,
    measure_surrogates,
    refine_frequencies,
)

ROWS, CHANNELS = 200, 5
FREQUENCIES = np.array([0.31, 0.9, 2.2])


def _plant(noise: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three waves on a trend, and the amplitudes of the waves."""
    rng = np.random.default_rng(seed)
    amplitudes = rng.standard_normal((6, CHANNELS))
    trend = make_trend(ROWS) @ rng.standard_normal((4, CHANNELS))
    rows = make_waves(make_times(ROWS), FREQUENCIES) @ amplitudes + trend
    return rows + noise * rng.standard_normal(rows.shape), amplitudes


def test_a_wave_is_cosine_and_sine_around_the_middle_row() -> None:
    times = make_times(5)
    assert times.tolist() == [-2, -1, 0, 1, 2]
    assert make_waves(times, np.array([0.3]))[4] == pytest.approx([np.cos(0.6), np.sin(0.6)])


def test_amplitudes_are_fitted_beside_a_trend() -> None:
    rows, amplitudes = _plant()
    model = fit_waves(rows, FREQUENCIES, make_trend(ROWS))
    assert model.amplitudes == pytest.approx(amplitudes, abs=1e-6)
    assert np.abs(model.residual).max() < 1e-8


def test_frequencies_are_refined_together_from_where_they_nearly_are() -> None:
    rows, _ = _plant()
    start = FREQUENCIES + np.array([0.01, -0.008, 0.012])
    model = refine_frequencies(rows, start, make_trend(ROWS), steps=30)
    assert model.frequencies == pytest.approx(FREQUENCIES, abs=1e-6)


def test_standard_errors_are_the_spread_of_the_estimates() -> None:
    estimates, errors = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = _plant()[0] + 0.3 * rng.standard_normal((ROWS, CHANNELS))
        model = refine_frequencies(rows, FREQUENCIES, make_trend(ROWS), steps=10)
        estimates.append(model.frequencies)
        errors.append(model.compute_standard_errors())
    assert np.mean(errors, axis=0) == pytest.approx(np.std(estimates, axis=0), rel=0.4)


def test_the_highest_peak_is_found_and_then_the_next() -> None:
    wave = make_waves(make_times(ROWS), FREQUENCIES[1:])
    rows = wave @ np.repeat([[3.0], [1.0]], 2, axis=0)
    first, height = find_peak(rows, np.zeros(0))
    assert first == pytest.approx(0.9, abs=0.01) and height > 10
    second, _ = find_peak(fit_waves(rows, np.array([0.9]), make_trend(ROWS)).residual, np.array([0.9]))
    assert second == pytest.approx(2.2, abs=0.01)
    assert find_peak(np.zeros((ROWS, 2)), np.zeros(0)) == (0.0, 0.0)


@pytest.mark.parametrize("steep", [False, True])
def test_a_steep_trend_is_fitted_with_decays_alone(steep: bool) -> None:
    rows = np.log(np.arange(ROWS) + 2.0)[:, None]
    basis = np.linalg.qr(make_trend(ROWS, steep=steep))[0]
    left = float(((rows - basis @ (basis.T @ rows)) ** 2).sum() / ((rows - rows.mean()) ** 2).sum())
    assert (left < 1e-3) == steep


def test_noise_agrees_by_the_share_of_common_rows_and_a_wave_wholly() -> None:
    """Two windows of three quarters of the rows have two thirds of their rows in common."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((512, 400))
    agreements = measure_agreement(noise, 2 * np.pi * np.array([20.0, 55.5, 130.2]) / 512)
    assert agreements == pytest.approx(2 / 3, abs=0.08)
    wave = make_waves(np.arange(512.0), np.array([0.5])) @ rng.standard_normal((2, 400))
    assert measure_agreement(wave, np.array([0.5])) == pytest.approx(1)


def test_a_wave_that_jumps_halfway_does_not_agree() -> None:
    wave = make_waves(np.arange(256.0), np.array([0.5])) @ np.eye(2)
    wave[128:] *= -1
    assert measure_agreement(wave, np.array([0.5]))[0] < 0.5


def _smooth(rows: int = 256, channels: int = 6) -> np.ndarray:
    noise = np.random.default_rng(0).standard_normal((rows + 100, channels))
    return lfilter([1.0], [1.0, -0.9], noise, axis=0)[100:]


def test_there_are_so_many_and_their_lines_agree_no_better_than_noise() -> None:
    agreements = list(measure_surrogates(_smooth()))
    assert len(agreements) == SURROGATES
    assert 0.2 < float(np.mean([found.mean() for found in agreements])) < 0.8
    assert max(float(found.max()) for found in agreements) <= 1


def test_components_rebuild_rows_and_are_orthonormal() -> None:
    rows = _smooth(channels=5) @ np.random.default_rng(2).standard_normal((5, 300))
    coordinates, components = _project_on_components(rows)
    assert coordinates.shape[1] == 5 <= MOST_COMPONENTS
    assert coordinates @ components == pytest.approx(rows, abs=1e-8)
    assert components @ components.T == pytest.approx(np.eye(5), abs=1e-8)
