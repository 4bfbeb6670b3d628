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
from clockhands.inspection.estimators.line_search import search_lines, undo_whitening
from clockhands.inspection.estimators.surrogates import LEAST_TURNS, measure_surrogates, project_on_components
from clockhands.inspection.estimators.wave_fit import LEAST_SEPARATION, Array, make_times, make_trend

LEAST_ROUNDNESS = 1 / 3
"""The least ratio of an orbit's short axis to its long one; below it a line oscillates and does not rotate."""
SAME_HAND_TURNS, SAME_HAND_SPEED = 3.0, 0.15
"""Neighbouring lines in one plane are one hand if they differ by so many turns within the table, or by
this part of the speed, at most."""
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
    """Return all lines, a line across columns joined with the pair of columns that has the same frequency.

    Two columns of a hand that lies across columns may happen to show a circle, which was then taken out before.
    """
    joined = list(column_lines)
    for line in mixed:
        near = (other for other in joined if other.columns and abs(other.frequency - line.frequency) < separation)
        same = next(near, None)
        if same is not None:
            joined.remove(same)
            # The plane of a line with parts is that of its strongest part.
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
    model = search_lines(whitened, steep=steep)
    lines = (
        undo_whitening(model, whitened, components, coefficient, variance, steep=steep)
        if len(model.frequencies)
        else []
    )
    least_turns = STEEP_TURNS if steep else LEAST_TURNS
    least_frequency = least_turns * 2 * np.pi / len(rows)
    lines = [line for line in lines if line.frequency >= least_frequency and line.share >= LEAST_SHARE]
    if float((model.residual**2).sum()) <= 1e-12 * float((whitened**2).sum()):
        agreements = []
    else:
        agreements = list(measure_surrogates(model.residual, np.random.default_rng(seed), steep=steep))
    return replace(_judge(lines, agreements, len(rows)), least_turns=round(least_turns))


def _is_steep(rows: Array) -> bool:
    """Tell whether much of a table is a trend: what half waves leave of one (``make_trend``) looks like slow lines."""
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
