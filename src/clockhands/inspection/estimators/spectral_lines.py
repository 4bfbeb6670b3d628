"""Spectral lines of a table: what turns at constant speed from its first row to its last, and how sure that is.

A smooth table (a random walk, filtered noise, a trend) has large and smooth columns, and any two of them look like a
slow circle. So a line is not judged by its power but by its agreement: its amplitude in every channel, fitted to the
first three quarters of the rows and again to the last three quarters, must be the same complex number. Noise agrees
only as far as the rows are the same ones. How well noise agrees at best depends on how many channels are independent,
so it is simulated with the table's own noise: surrogates with randomised phases, and with an autoregressive fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clockhands.inspection.estimators.autoregression import burg
from clockhands.inspection.estimators.column_lines import AGREEMENT, SMALLEST_SHARE, Line, column_lines
from clockhands.inspection.estimators.surrogates import (
    FEWEST_TURNS,
    PATIENCE,
    draw_surrogates,
    leading_components,
)
from clockhands.inspection.estimators.wave_fit import (
    CLOSEST,
    WINDOW,
    Array,
    WaveModel,
    agreements,
    find_peak,
    fit_waves,
    refine,
    slow_basis,
    times_of,
)

ROUND = 1 / 3
"""The least ratio of an orbit's short axis to its long one; below it a line swings and does not turn."""
BESIDE, NEAR = 3.0, 0.15
"""Turns within the table, and share of the speed, by which lines in one plane may differ that are one hand."""
MOST_LINES = 48
STEEP, STEEP_ROWS = 0.3, 32
"""From this share of its variance, and this number of rows, the trend of a table is fitted with decays too."""
STEEP_TURNS = 2.98
"""Beside such a trend a line must turn three times: two turns and a trend cannot be told apart."""


@dataclass(frozen=True)
class Spectrum:
    """The lines of a table, the fastest first. ``turning`` are hands, ``swinging`` lines whose orbit is flat.

    ``needed`` is the agreement that a line had to beat, ``best_other`` the best of those that did not (0 if there was
    none), ``surrogates`` the number of surrogates, ``best_surrogate`` the best agreement of a line in any of them, and
    ``by_chance`` the mean number of lines in one that agree by ``AGREEMENT``.
    """

    turning: tuple[Line, ...]
    swinging: tuple[Line, ...]
    needed: float
    best_other: float
    by_chance: float = 0.0
    surrogates: int = 0
    best_surrogate: float = 0.0


NOTHING = Spectrum((), (), AGREEMENT, 0.0)


def find_lines(rows_nD: Array, seed: int = 0) -> Spectrum:
    """Find what turns at constant speed all along n rows of D channels.

    Pairs of columns that are one line each are read first and taken out. In the rest, where channels may be mixed in
    any way, the rows are whitened by one autoregressive coefficient for all channels. The strongest peak of the summed
    periodogram is added to the model, all frequencies are refined together by least squares (Gauss-Newton; the
    amplitudes are solved for in every step: variable projection, Golub & Pereyra 1973), and so on with the residual.
    """
    rows = rows_nD - rows_nD.mean(0)
    power = float((rows**2).mean(0).sum())
    if power <= 1e-18 * float((rows_nD**2).mean(0).sum()):
        return NOTHING
    read, rest = column_lines(rows, power)
    mixed = _mixed_lines(rest - rest.mean(0), power, seed)
    turning = _joined(read, mixed.turning, CLOSEST * 2 * np.pi / len(rows))
    return replace(mixed, turning=tuple(sorted(turning, key=lambda line: -line.frequency)))


def _joined(read: list[Line], mixed: tuple[Line, ...], near: float) -> list[Line]:
    """All lines; a mixed hand of which two columns happen to show a circle is one hand."""
    found = list(read)
    for line in mixed:
        same = next((known for known in found if known.columns and abs(known.frequency - line.frequency) < near), None)
        if same is not None:
            found.remove(same)
            whole = line.plane_2D if line.parts else line.plane_2D + same.plane_2D
            line = replace(line, plane_2D=whole, share=line.share + same.share)
        found.append(line)
    return found


def _mixed_lines(rows: Array, power: float, seed: int) -> Spectrum:
    if float((rows**2).sum()) <= 1e-12 * power * len(rows):
        return NOTHING
    coefficient = -burg(rows, 1)[1]
    white, axes = leading_components(rows[1:] - coefficient * rows[:-1])
    steep = _is_steep(rows)
    model = _search(white, steep)
    lines = _lines(model, white, axes, coefficient, power, steep) if len(model.frequencies) else []
    slow = (STEEP_TURNS if steep else FEWEST_TURNS) * 2 * np.pi / len(rows)
    lines = [line for line in lines if line.frequency >= slow and line.share >= SMALLEST_SHARE]
    if float((model.residual**2).sum()) <= 1e-12 * float((white**2).sum()):
        return _spectrum(lines, [], len(rows))
    surrogates = list(draw_surrogates(model.residual, np.random.default_rng(seed), steep=steep))
    return _spectrum(lines, surrogates, len(rows))


def _is_steep(rows: Array) -> bool:
    """Whether much of a table is a trend, of which half waves alone would leave too much beside slow lines."""
    basis = np.linalg.qr(slow_basis(len(rows)))[0]
    return len(rows) >= STEEP_ROWS and float(((basis.T @ rows) ** 2).sum()) > STEEP * float((rows**2).sum())


def _spectrum(lines: list[Line], surrogates: list[Array], count: int) -> Spectrum:
    """Judge the lines by the agreements in surrogates; by ``AGREEMENT`` alone where no noise is left."""
    highest = max((float(one.max()) for one in surrogates), default=0.0)
    needed = max(AGREEMENT, highest)
    found = _gathered([line for line in lines if line.agreement > needed], count)
    return Spectrum(
        turning=tuple(line for line in found if line.roundness >= ROUND),
        swinging=tuple(line for line in found if line.roundness < ROUND),
        needed=needed,
        best_other=max((line.agreement for line in lines if line.agreement <= needed), default=0.0),
        by_chance=float(np.mean([(one > AGREEMENT).sum() for one in surrogates])) if surrogates else 0.0,
        surrogates=len(surrogates),
        best_surrogate=highest,
    )


def _gathered(lines: list[Line], count: int) -> list[Line]:
    """The fastest first; neighbours in one plane become one line whose speed varies."""
    groups: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: -line.frequency):
        last = groups[-1][-1] if groups else None
        reach = max(BESIDE * 2 * np.pi / count, NEAR * line.frequency)
        if last and last.frequency - line.frequency < reach and _overlap(last, line) > 0.5:
            groups[-1].append(line)
        else:
            groups.append([line])
    return [group[0] if len(group) == 1 else _varying(group, count) for group in groups]


def _overlap(one: Line, other: Line) -> float:
    """How far two lines lie in the same plane, and turn the same way in it: 1 if they do, 0 if at right angles."""
    both = np.abs(np.vdot(one.amplitude_D, other.amplitude_D))
    return float(both / np.linalg.norm(one.amplitude_D) / np.linalg.norm(other.amplitude_D))


def _varying(parts: list[Line], count: int) -> Line:
    """One line of several in one plane, that of the strongest, with its mean speed from the first row to the last."""
    strongest = max(parts, key=lambda line: line.share)
    line = replace(strongest, parts=tuple(parts))
    path = line.waves(count)
    angle = np.unwrap(np.angle(path @ strongest.amplitude_D.conj()))
    speed = abs(float(np.polyfit(times_of(count), angle, 1)[0]))
    total, alone = float((path**2).sum()), float((strongest.waves(count) ** 2).sum())
    agreement = min(part.agreement for part in parts)
    return replace(line, frequency=speed, share=strongest.share * total / alone, agreement=agreement)


def _search(rows: Array, steep: bool) -> WaveModel:
    """Add lines until ``PATIENCE`` of them in vain did not agree with themselves; those that stand out count half."""
    slow = slow_basis(len(rows), steep=steep)
    model = fit_waves(rows, np.zeros(0), slow)
    most = min(MOST_LINES, int((WINDOW * len(rows) / 2 - slow.shape[1]) / 2))
    total, vain, tried = float((rows**2).sum()), 0.0, np.zeros(0)
    while len(model.frequencies) < most and vain < PATIENCE:
        frequency, height = find_peak(model.residual, np.append(model.frequencies, tried))
        if height == 0 or float((model.residual**2).sum()) < 1e-12 * total:
            break
        longer = refine(rows, np.append(model.frequencies, frequency), slow, steps=2)
        if _crowded(longer.frequencies, len(rows)):
            tried = np.append(tried, frequency)
            vain += 0.5
            continue
        model = longer
        if agreements(rows, model.frequencies, steep=steep)[-1] < AGREEMENT:
            vain += 1 if height < 3 else 0.5
    if not len(model.frequencies):
        return model
    final = refine(rows, model.frequencies, slow, steps=15)
    return model if _crowded(final.frequencies, len(rows)) else final


def _crowded(frequencies: Array, count: int) -> bool:
    """Whether two lines are so close that their amplitudes cannot be told apart."""
    return bool((np.diff(np.sort(frequencies)) * count < CLOSEST * 2 * np.pi).any())


def _lines(model: WaveModel, white: Array, axes: Array, coefficient: float, power: float, steep: bool) -> list[Line]:
    """The lines of the table itself, from those of its whitened rows."""
    agreement, errors = agreements(white, model.frequencies, steep=steep), model.errors()
    found = []
    for at, frequency in enumerate(model.frequencies):
        cosine, sine = model.amplitudes[2 * at : 2 * at + 2]
        # a wave of amplitude c leaves the filter x_t − φ x_(t−1) with c (1 − φ e^(−iω)), half a row later
        amplitude = (cosine - 1j * sine) / (1 - coefficient * np.exp(-1j * frequency)) * np.exp(-0.5j * frequency)
        plane = np.stack([amplitude.real, -amplitude.imag]) @ axes
        spread = np.linalg.svd(plane, compute_uv=False)
        share = float((spread**2).sum() / 2 / power)
        roundness = float(spread[-1] / spread[0]) if len(spread) > 1 else 0.0
        found.append(Line(float(frequency), plane, share, float(agreement[at]), roundness, float(errors[at])))
    return found
