"""Spectral lines of a table: what rotates at constant speed from its first row to its last, and how sure that is.

A smooth table (a random walk, filtered noise, a trend) has large and smooth columns, and any two of them look like a
slow circle. So a line is not judged by its power but by its agreement: its amplitude in every channel, fitted to the
first three quarters of the rows and again to the last three quarters, must be the same complex number. In noise the
two agree only because half of the rows are in both. How well noise agrees at best depends on how many channels are
independent, so it is simulated with the table's own noise: surrogates with random phases, and with an autoregression.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clockhands.inspection.estimators.autoregression import fit_autoregression
from clockhands.inspection.estimators.column_lines import (
    LEAST_AGREEMENT,
    LEAST_SHARE,
    SpectralLine,
    take_column_lines,
)
from clockhands.inspection.estimators.surrogates import (
    LEAST_TURNS,
    PATIENCE,
    measure_surrogates,
    project_on_components,
)
from clockhands.inspection.estimators.wave_fit import (
    END_PART,
    LEAST_SEPARATION,
    Array,
    WaveModel,
    find_peak,
    fit_waves,
    make_times,
    make_trend,
    measure_agreement,
    refine_frequencies,
)

LEAST_ROUNDNESS = 1 / 3
"""The least ratio of an orbit's short axis to its long one; below it a line oscillates and does not rotate."""
SAME_HAND_TURNS, SAME_HAND_SPEED = 3.0, 0.15
"""Neighbouring lines in one plane are one hand if they differ by so many turns within the table, or by
this part of the speed, at most."""
MOST_LINES = 48
"""Lines that are fitted to a table at most."""
STEEP_SHARE, STEEP_ROWS = 0.3, 32
"""From this share of its variance, and this number of rows, the trend of a table is fitted with decays too."""
STEEP_TURNS = 2.98
"""Beside such a trend a line must turn three times within the table: two turns cannot be told from the trend."""


@dataclass(frozen=True)
class TableLines:
    """The spectral lines of a table, the fastest first, and what they were compared with.

    Attributes:
        rotating: lines whose orbit is round enough to be a clock hand.
        oscillating: lines whose orbit is flat.
        needed: the agreement that a line had to exceed.
        best_other: the best agreement of a line that did not exceed it; 0 if there was none.
        by_chance: the mean number of lines of a surrogate that agree by more than ``LEAST_AGREEMENT``.
        surrogates: how many surrogates were drawn; 0 where the lines leave no noise.
        best_surrogate: the best agreement of a line in any of them.
        least_turns: how often a line across columns had to turn within the table, in whole turns.
    """

    rotating: tuple[SpectralLine, ...]
    oscillating: tuple[SpectralLine, ...]
    needed: float
    best_other: float
    by_chance: float = 0.0
    surrogates: int = 0
    best_surrogate: float = 0.0
    least_turns: int = round(LEAST_TURNS)


NO_LINES = TableLines((), (), LEAST_AGREEMENT, 0.0)
"""What is found in a table that holds nothing to look at."""


def find_lines(table: Array, seed: int = 0) -> TableLines:
    """Find what rotates at constant speed all along N rows of D channels.

    Pairs of columns that hold one line each are found first and subtracted. In the rest, where channels may be mixed in
    any way, the rows are whitened by one autoregressive coefficient for all channels. The highest peak of the summed
    periodogram is added to the model, all frequencies are refined together by least squares (variable projection, Golub
    & Pereyra 1973), and so on with the residual. Surrogates after Theiler et al. 1992.

    Args:
        table: the rows, [N, D], in float64.
        seed: of the surrogates.
    """
    rows = table - table.mean(0)
    variance = float((rows**2).mean(0).sum())
    if variance <= 1e-18 * float((table**2).mean(0).sum()):
        return NO_LINES
    column_lines, rest = take_column_lines(rows, variance)
    mixed = _find_mixed_lines(rest - rest.mean(0), variance, seed)
    rotating = _join(column_lines, mixed.rotating, LEAST_SEPARATION * 2 * np.pi / len(rows))
    return replace(mixed, rotating=tuple(sorted(rotating, key=lambda line: -line.frequency)))


def _join(column_lines: list[SpectralLine], mixed: tuple[SpectralLine, ...], separation: float) -> list[SpectralLine]:
    """Return all lines; a mixed hand of which two columns happen to show a circle becomes one with that circle."""
    joined = list(column_lines)
    for line in mixed:
        near = (other for other in joined if other.columns and abs(other.frequency - line.frequency) < separation)
        same = next(near, None)
        if same is not None:
            joined.remove(same)
            plane_2D = line.plane_2D if line.parts else line.plane_2D + same.plane_2D
            line = replace(line, plane_2D=plane_2D, share=line.share + same.share)
        joined.append(line)
    return joined


def _find_mixed_lines(rows: Array, variance: float, seed: int) -> TableLines:
    """Find lines that lie across channels; ``variance`` is that of the whole table."""
    if float((rows**2).sum()) <= 1e-12 * variance * len(rows):
        return NO_LINES
    coefficient = -fit_autoregression(rows, 1)[1]
    whitened, components = project_on_components(rows[1:] - coefficient * rows[:-1])
    steep = _is_steep(rows)
    model = _search(whitened, steep)
    lines = _undo_whitening(model, whitened, components, coefficient, variance, steep) if len(model.frequencies) else []
    least_turns = STEEP_TURNS if steep else LEAST_TURNS
    least_frequency = least_turns * 2 * np.pi / len(rows)
    lines = [line for line in lines if line.frequency >= least_frequency and line.share >= LEAST_SHARE]
    if float((model.residual**2).sum()) <= 1e-12 * float((whitened**2).sum()):
        agreements = []
    else:
        agreements = list(measure_surrogates(model.residual, np.random.default_rng(seed), steep=steep))
    return replace(_judge(lines, agreements, len(rows)), least_turns=round(least_turns))


def _is_steep(rows: Array) -> bool:
    """Tell whether much of a table is a trend, of which half waves alone would leave too much beside slow lines."""
    basis = np.linalg.qr(make_trend(len(rows)))[0]
    return len(rows) >= STEEP_ROWS and float(((basis.T @ rows) ** 2).sum()) > STEEP_SHARE * float((rows**2).sum())


def _judge(lines: list[SpectralLine], surrogate_agreements: list[Array], num_rows: int) -> TableLines:
    """Keep the lines that agree better than any in the surrogates, and than ``LEAST_AGREEMENT`` in any case."""
    best_surrogate = max((float(agreements.max()) for agreements in surrogate_agreements), default=0.0)
    needed = max(LEAST_AGREEMENT, best_surrogate)
    kept = _gather_hands([line for line in lines if line.agreement > needed], num_rows)
    by_chance = [(agreements > LEAST_AGREEMENT).sum() for agreements in surrogate_agreements]
    return TableLines(
        rotating=tuple(line for line in kept if line.roundness >= LEAST_ROUNDNESS),
        oscillating=tuple(line for line in kept if line.roundness < LEAST_ROUNDNESS),
        needed=needed,
        best_other=max((line.agreement for line in lines if line.agreement <= needed), default=0.0),
        by_chance=float(np.mean(by_chance)) if surrogate_agreements else 0.0,
        surrogates=len(surrogate_agreements),
        best_surrogate=best_surrogate,
    )


def _gather_hands(lines: list[SpectralLine], num_rows: int) -> list[SpectralLine]:
    """Make neighbouring lines in one plane one line whose speed varies; return all, the fastest first."""
    groups: list[list[SpectralLine]] = []
    for line in sorted(lines, key=lambda line: -line.frequency):
        last = groups[-1][-1] if groups else None
        reach = max(SAME_HAND_TURNS * 2 * np.pi / num_rows, SAME_HAND_SPEED * line.frequency)
        if last and last.frequency - line.frequency < reach and _compare_planes(last, line) > 0.5:
            groups[-1].append(line)
        else:
            groups.append([line])
    return [group[0] if len(group) == 1 else _combine_parts(group, num_rows) for group in groups]


def _compare_planes(first: SpectralLine, second: SpectralLine) -> float:
    """Return 1 if two lines rotate the same way in one plane, 0 if opposite ways or in planes at right angles."""
    product = np.abs(np.vdot(first.amplitude_D, second.amplitude_D))
    return float(product / np.linalg.norm(first.amplitude_D) / np.linalg.norm(second.amplitude_D))


def _combine_parts(parts: list[SpectralLine], num_rows: int) -> SpectralLine:
    """Return one line for several in one plane: that of the strongest, with the mean speed of their sum."""
    strongest = max(parts, key=lambda line: line.share)
    line = replace(strongest, parts=tuple(parts))
    path = line.compute_rows(num_rows)
    angle = np.unwrap(np.angle(path @ strongest.amplitude_D.conj()))
    speed = abs(float(np.polyfit(make_times(num_rows), angle, 1)[0]))
    total, alone = float((path**2).sum()), float((strongest.compute_rows(num_rows) ** 2).sum())
    agreement = min(part.agreement for part in parts)
    return replace(line, frequency=speed, share=strongest.share * total / alone, agreement=agreement)


def _search(rows: Array, steep: bool) -> WaveModel:
    """Add lines to a model one by one, until ``PATIENCE`` of them did not agree with themselves.

    A line that does not agree counts half if its peak is three times the median of the periodogram or more, and so does
    one that cannot be fitted beside those before it.
    """
    trend = make_trend(len(rows), steep=steep)
    model = fit_waves(rows, np.zeros(0), trend)
    most = min(MOST_LINES, int((END_PART * len(rows) / 2 - trend.shape[1]) / 2))
    total, failures, rejected = float((rows**2).sum()), 0.0, np.zeros(0)
    while len(model.frequencies) < most and failures < PATIENCE:
        frequency, height = find_peak(model.residual, np.append(model.frequencies, rejected))
        if height == 0 or float((model.residual**2).sum()) < 1e-12 * total:
            break
        extended = refine_frequencies(rows, np.append(model.frequencies, frequency), trend, steps=2)
        if _are_inseparable(extended.frequencies, len(rows)):
            rejected = np.append(rejected, frequency)
            failures += 0.5
            continue
        model = extended
        if measure_agreement(rows, model.frequencies, steep=steep)[-1] < LEAST_AGREEMENT:
            failures += 1 if height < 3 else 0.5
    if not len(model.frequencies):
        return model
    final = refine_frequencies(rows, model.frequencies, trend, steps=15)
    return model if _are_inseparable(final.frequencies, len(rows)) else final


def _are_inseparable(frequencies: Array, num_rows: int) -> bool:
    """Tell whether two frequencies are so close that their amplitudes cannot be told apart."""
    return bool((np.diff(np.sort(frequencies)) * num_rows < LEAST_SEPARATION * 2 * np.pi).any())


def _undo_whitening(
    model: WaveModel, whitened: Array, components: Array, coefficient: float, variance: float, steep: bool
) -> list[SpectralLine]:
    """Return the lines of the table itself from those fitted to its whitened rows.

    ``coefficient`` φ is that of the filter x_t − φ x_(t−1), ``components`` [C, D] those of the whitened coordinates.
    """
    agreement = measure_agreement(whitened, model.frequencies, steep=steep)
    errors = model.compute_standard_errors()
    lines = []
    for index, frequency in enumerate(model.frequencies):
        cosine, sine = model.amplitudes[2 * index : 2 * index + 2]
        # A wave of amplitude c leaves the filter x_t − φ x_(t−1) with c (1 − φ e^(−iω)), half a row later.
        amplitude = (cosine - 1j * sine) / (1 - coefficient * np.exp(-1j * frequency)) * np.exp(-0.5j * frequency)
        plane_2D = np.stack([amplitude.real, -amplitude.imag]) @ components
        axes = np.linalg.svd(plane_2D, compute_uv=False)
        lines.append(
            SpectralLine(
                frequency=float(frequency),
                plane_2D=plane_2D,
                share=float((axes**2).sum() / 2 / variance),
                agreement=float(agreement[index]),
                roundness=float(axes[-1] / axes[0]) if len(axes) > 1 else 0.0,
                error=float(errors[index]),
            )
        )
    return lines
