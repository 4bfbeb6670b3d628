"""Lines must be found where they were planted, at their periods, and nowhere else (rates: benchmarks/hands.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.hands import SMOOTH, encoding_speeds, findable, hands_of, invented, planted, rotation, walk
from scipy.signal import lfilter

from clockhands.inspection.estimators.hands import (
    LEAST_AGREEMENT,
    LEAST_SHARE,
    MOST_COMPONENTS,
    SURROGATES,
    SpectralLine,
    WaveFit,
    find_lines,
    find_peak,
    fit_pairs,
    join,
    make_times,
    make_trend,
    make_waves,
    measure_agreement,
    measure_surrogates,
    project_on_components,
)
from clockhands.inspection.estimators.matrix_statistics import list_pairings

Random = np.random.Generator


@pytest.mark.parametrize("seed", range(4))
def test_planted_periods_are_found_within_one_per_cent(seed: int) -> None:
    """A sample of the population of benchmarks/hands.py, of the smaller tables."""
    table = next(table for table in map(_small, range(40 * seed, 40 * seed + 40)) if table is not None)
    assert table["missed"] == 0, table
    assert table["invented"] == 0, table


def _small(seed: int) -> dict[str, float | str | bool] | None:
    """One of at most 256 rows and 64 columns; drawing its size first costs nothing."""
    rng = np.random.default_rng(seed)
    small = int(rng.choice([128, 256, 512, 1024])) <= 256 and int(rng.choice([64, 384])) == 64
    return planted(seed) if small else None


@pytest.mark.slow
def test_both_rates_hold() -> None:
    """95 of 100 planted tables whole; at most 1 smooth table in 20 with a hand, over all kinds together and by kind."""
    tables = [planted(seed) for seed in range(60)]
    assert sum(table["missed"] == 0 for table in tables) >= 0.95 * len(tables)
    seen = {kind: sum(invented(kind, 128, 64, seed) for seed in range(20)) for kind in SMOOTH}
    assert sum(seen.values()) <= 0.05 * 20 * len(SMOOTH), seen
    assert max(seen.values()) <= 4, "binomial(20, 0.05): five or more once in 400"


def test_at_most_one_smooth_table_in_twenty_has_a_hand() -> None:
    """One of each kind: noise of many kinds, trends, steps, special rows, few dimensions."""
    seen = [kind for kind in SMOOTH if invented(kind, 128, 32, seed=0)]
    assert len(seen) <= 3, f"of {len(SMOOTH)}; at a rate of 1 in 20 four or more come once in 20"


def test_a_table_as_it_stands_gives_up_hands_that_are_close() -> None:
    rng = np.random.default_rng(0)
    speeds = encoding_speeds(32, 128, rng)
    rows, left = hands_of(128, 64, speeds, rng, 0.1, mixed=False)
    turns = [128 / line.period for line in find_lines(rows).rotating]
    wanted = findable(left, 128, mixed=False, fewest=2)
    assert len(wanted) >= 8
    assert all(min(abs(np.array(turns) / turn - 1)) < 0.01 for turn in wanted)


def test_the_error_of_a_period_is_covered_by_its_interval() -> None:
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rows, speeds = hands_of(128, 16, np.array([0.7]), rng, 0.3, mixed=True)
        (line,) = find_lines(rows).rotating
        inside.append(abs(line.frequency - speeds[0]) < 1.96 * line.error)
    assert sum(inside) >= 9


def test_power_alone_makes_no_line() -> None:
    """In a random walk of two dimensions the strongest waves agree by chance: only surrogates tell."""
    seen = [find_lines(walk(128, 2, np.random.default_rng(seed))) for seed in range(12)]
    assert sum(found.best_other > LEAST_AGREEMENT for found in seen) > 6
    assert sum(bool(found.rotating) for found in seen) <= 2


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 17, 24, 33])
@pytest.mark.parametrize("kind", ["noise", "zero", "constant", "one row", "one column"])
def test_degenerate_tables_have_no_hands_and_raise_nothing(count: int, kind: str) -> None:
    rows = np.random.default_rng(count).standard_normal((count, 6))
    if kind == "one row":
        rows[1:] = rows[:1] * 0
    elif kind != "noise":
        rows = {"zero": 0 * rows, "constant": 0 * rows + 0.1, "one column": rows[:, :1]}[kind]
    with np.errstate(all="raise"):
        found = find_lines(rows)
    assert not found.rotating


@pytest.mark.parametrize("seed", range(2))
def test_one_mixed_hand_is_one(seed: int) -> None:
    """Some pair of its columns looks like a circle of its own."""
    rng = np.random.default_rng(seed)
    rows, _ = hands_of(128, 64, np.array([0.7]), rng, 0.02, mixed=True)
    (line,) = find_lines(rows).rotating
    assert line.share == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("mixed", [False, True])
def test_the_share_of_a_hand_is_its_share_of_the_power_of_the_table(mixed: bool) -> None:
    """Hands of radius 2 and 1 with little noise, in columns of their own or mixed by a rotation: 4/5 and 1/5."""
    at, draw = np.arange(256), np.random.default_rng(3)
    rows = 0.05 * draw.standard_normal((256, 4))
    for column, (radius, speed) in enumerate([(2, 0.5), (1, 1.3)]):
        rows[:, 2 * column] += radius * np.sin(speed * at)
        rows[:, 2 * column + 1] += radius * np.cos(speed * at)
    rows = rows @ rotation(4, draw) if mixed else rows
    shares = {round(line.frequency, 2): line.share for line in find_lines(rows).rotating}
    assert shares == {0.5: pytest.approx(0.8, rel=0.03), 1.3: pytest.approx(0.2, rel=0.03)}


ROWS = 128


def _pair(speed: float, flat: float = 1.0) -> np.ndarray:
    angle = speed * np.arange(ROWS)
    return np.stack([np.cos(angle), flat * np.sin(angle)], axis=1)


def _take(rows: np.ndarray) -> tuple[list[SpectralLine], np.ndarray]:
    rows = rows - rows.mean(0)
    variance = float((rows**2).mean(0).sum())
    lines = max((fit_pairs(rows, pairs, variance) for pairs in list_pairings(rows.shape[1])), key=len)
    return lines, rows - sum((line.compute_rows(ROWS) for line in lines), np.zeros_like(rows))


@pytest.mark.parametrize("halves", [False, True])
def test_both_ways_to_pair_columns_are_tried(halves: bool) -> None:
    first, second = _pair(0.5), _pair(0.53)
    rows = np.concatenate([first, second], axis=1)
    rows = rows[:, [0, 2, 1, 3]] if halves else rows
    lines, rest = _take(rows)
    assert sorted(line.frequency for line in lines) == pytest.approx([0.5, 0.53], rel=1e-3)
    assert {line.columns for line in lines} == ({(0, 2), (1, 3)} if halves else {(0, 1), (2, 3)})
    assert all(line.roundness == pytest.approx(1, abs=0.05) for line in lines)
    assert float((rest**2).sum()) < 1e-2 * float((rows**2).sum())


@pytest.mark.parametrize("kind", ["flat", "two speeds", "one turn", "noise"])
def test_what_is_not_one_circle_is_left(kind: str) -> None:
    rows = {
        "flat": _pair(0.5, flat=0.5),
        "two speeds": np.stack([np.cos(0.5 * np.arange(ROWS)), np.sin(0.9 * np.arange(ROWS))], axis=1),
        "one turn": _pair(2 * np.pi / ROWS),
        "noise": np.random.default_rng(0).standard_normal((ROWS, 2)),
    }[kind]
    lines, rest = _take(rows)
    assert not lines
    assert rest == pytest.approx(rows - rows.mean(0))


def test_a_line_adds_its_rows() -> None:
    (line,), _ = _take(_pair(0.5))
    assert line.period == pytest.approx(4 * np.pi, rel=1e-3)
    assert line.compute_rows(ROWS) == pytest.approx(_pair(0.5), abs=0.02)
    parts = replace(line, parts=(line, line))
    assert parts.compute_rows(ROWS) == pytest.approx(2 * line.compute_rows(ROWS))


def test_two_pairs_of_columns_at_one_speed_are_one_line_in_all_four() -> None:
    first = SpectralLine(0.5, np.ones((2, 4)), 0.3, 0.99, 1.0, 0.01, columns=(0, 4))
    second = replace(first, columns=(1, 5), agreement=0.9, roundness=0.8)
    lines = [first]
    join(lines, second, 1e-3)
    (line,) = lines
    assert line.columns == (0, 1, 4, 5) and (line.agreement, line.roundness) == (0.9, 0.8)
    assert line.share == pytest.approx(0.6) and line.plane_2D.tolist() == [[2.0] * 4] * 2
    join(lines, replace(second, frequency=0.51), 1e-3)
    assert len(lines) == 2


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_line_counts_by_its_share_whatever_the_unit_of_the_table_is(unit: float) -> None:
    """The second has a tenth of the least share; the first is all the rest."""
    faint = (0.1 * LEAST_SHARE) ** 0.5
    lines, _ = _take(unit * np.concatenate([_pair(0.5), faint * _pair(0.9)], axis=1))
    assert [line.columns for line in lines] == [(0, 1)]
    assert lines[0].frequency == pytest.approx(0.5, rel=1e-3) and lines[0].share == pytest.approx(1, abs=0.01)


COUNT, CHANNELS = 200, 5
FREQUENCIES = np.array([0.31, 0.9, 2.2])


def _plant_waves(noise: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three waves on a trend, and the amplitudes of the waves."""
    rng = np.random.default_rng(seed)
    amplitudes = rng.standard_normal((6, CHANNELS))
    trend = make_trend(COUNT) @ rng.standard_normal((4, CHANNELS))
    rows = make_waves(make_times(COUNT), FREQUENCIES) @ amplitudes + trend
    return rows + noise * rng.standard_normal(rows.shape), amplitudes


def test_a_wave_is_cosine_and_sine_around_the_middle_row() -> None:
    times = make_times(5)
    assert times.tolist() == [-2, -1, 0, 1, 2]
    assert make_waves(times, np.array([0.3]))[4] == pytest.approx([np.cos(0.6), np.sin(0.6)])


def test_amplitudes_are_fitted_beside_a_trend() -> None:
    rows, amplitudes = _plant_waves()
    fit = WaveFit(rows, FREQUENCIES, make_trend(COUNT))
    assert fit.amplitudes == pytest.approx(amplitudes, abs=1e-6)
    assert np.abs(fit.residual).max() < 1e-8


def test_frequencies_are_refined_together_from_where_they_nearly_are() -> None:
    rows, _ = _plant_waves()
    start = FREQUENCIES + np.array([0.01, -0.008, 0.012])
    fit = WaveFit(rows, start, make_trend(COUNT)).refine(steps=30)
    assert fit.frequencies == pytest.approx(FREQUENCIES, abs=1e-6)


def test_standard_errors_are_the_spread_of_the_estimates() -> None:
    estimates, errors = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = _plant_waves()[0] + 0.3 * rng.standard_normal((COUNT, CHANNELS))
        fit = WaveFit(rows, FREQUENCIES, make_trend(COUNT)).refine(steps=10)
        estimates.append(fit.frequencies)
        errors.append(fit.compute_standard_errors())
    assert np.mean(errors, axis=0) == pytest.approx(np.std(estimates, axis=0), rel=0.4)


def test_the_highest_peak_is_found_and_then_the_next() -> None:
    wave = make_waves(make_times(COUNT), FREQUENCIES[1:])
    rows = wave @ np.repeat([[3.0], [1.0]], 2, axis=0)
    first, height = find_peak(rows, np.zeros(0))
    assert first == pytest.approx(0.9, abs=0.01) and height > 10
    second, _ = find_peak(WaveFit(rows, np.array([0.9]), make_trend(COUNT)).residual, np.array([0.9]))
    assert second == pytest.approx(2.2, abs=0.01)
    assert find_peak(np.zeros((COUNT, 2)), np.zeros(0)) == (0.0, 0.0)


@pytest.mark.parametrize("steep", [False, True])
def test_a_steep_trend_is_fitted_with_decays_alone(steep: bool) -> None:
    rows = np.log(np.arange(COUNT) + 2.0)[:, None]
    basis = np.linalg.qr(make_trend(COUNT, steep=steep))[0]
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
    assert 0.2 < float(np.mean([agreement.mean() for agreement in agreements])) < 0.8
    assert max(float(agreement.max()) for agreement in agreements) <= 1


def test_components_rebuild_rows_and_are_orthonormal() -> None:
    rows = _smooth(channels=5) @ np.random.default_rng(2).standard_normal((5, 300))
    coordinates, components = project_on_components(rows)
    assert coordinates.shape[1] == 5 <= MOST_COMPONENTS
    assert coordinates @ components == pytest.approx(rows, abs=1e-8)
    assert components @ components.T == pytest.approx(np.eye(5), abs=1e-8)
