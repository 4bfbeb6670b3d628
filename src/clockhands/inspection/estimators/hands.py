"""Clock hands of a table of positions: what rotates at constant speed from its first row to its last.

Hands of computed sinusoids are read from their columns. Else a frequency is judged by its *agreement*: its amplitudes
in all channels, fitted to the first three quarters of the rows and again to the last, must be the same complex numbers.
Power proves nothing, for any two columns of a smooth table look like a slow circle. In noise the two ends agree only
because half of the rows are in both; how well it agrees at best is seen in surrogates, tables with the spectrum of what
the hands leave and random phases (Theiler et al. 1992).

Rows are counted from the middle of the table, and a frequency is in radians per row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from clockhands.inspection.estimators.matrix_statistics import fit_line
from clockhands.inspection.estimators.waves import (
    END_PART,
    LEAST_SEPARATION,
    LEAST_TURNS,
    PATIENCE,
    Array,
    WaveModel,
    find_peak,
    fit_waves,
    make_times,
    make_trend,
    make_waves,
    measure_agreement,
    measure_surrogates,
    refine_frequencies,
)
from clockhands.shapes import Float, Tensor

STEEP_TURNS = 2.98
"""Beside a steep trend a line must turn three times within the table: two turns cannot be told from the trend."""
LEAST_AGREEMENT, LEAST_SHARE, LEAST_ROUNDNESS = 0.85, 1e-4, 1 / 3
"""The least agreement, share of the variance and roundness (short axis of the orbit over the long one) of a hand."""
MOST_LINES, MOST_COMPONENTS = 48, 128
"""Lines that are fitted to a table, and principal components that are kept of it, at most."""
STEEP_SHARE, STEEP_ROWS = 0.3, 32
"""From this share of its variance, and this number of rows, the trend of a table is fitted with decays too."""
SAME_HAND_TURNS, SAME_HAND_SPEED = 3.0, 0.15
"""Neighbouring lines in one plane are one hand if they differ by so many turns, or this part of the speed, at most."""


@dataclass(frozen=True)
class ExactHands:
    """The pairs of columns that turn in equal steps: tokens per turn, and the two columns of each.

    ``zero_pairs`` counts the pairs that are zero throughout, ``resting_pairs`` those that are the same in every row.
    """

    periods: tuple[float, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    zero_pairs: int = 0
    resting_pairs: int = 0


def list_pairings(width: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the two ways in which sine and cosine are paired: neighbours (Vaswani et al. 2017), or half the width."""
    half = width // 2
    return [(2 * i, 2 * i + 1) for i in range(half)], [(i, i + half) for i in range(half)]


def read_exact_hands(rows_ND: Float[Tensor, "N D"]) -> ExactHands:
    """Read the hands of a table of computed sinusoids; none unless every pair that is not at rest is a hand.

    No spectrum is searched, so that hands are read too that need many more rows for a turn than the table has.
    """
    for pairs in () if rows_ND.shape[1] % 2 else list_pairings(rows_ND.shape[1]):
        zero = [pair for pair in pairs if not bool(rows_ND[:, pair].any())]
        resting = [pair for pair in pairs if pair not in zero and torch.equal(*rows_ND[:, pair].aminmax(dim=0))]
        rotating = [pair for pair in pairs if pair not in (*zero, *resting)]
        periods = [period for pair in rotating if (period := _read_period(rows_ND[:, pair])) is not None]
        if rotating and len(periods) == len(rotating):
            return ExactHands(tuple(periods), tuple(rotating), len(zero), len(resting))
    return ExactHands()


def _read_period(orbit_N2: Float[Tensor, "N two"]) -> float | None:
    """Return the tokens per turn of a point that rotates around zero in equal steps; None for any other.

    Its distance from zero varies by less than 0.1 %, and its angle is a straight line with R² above 0.9999.
    """
    radius = orbit_N2.norm(dim=-1)
    if float(radius.std()) >= 1e-3 * float(radius.mean()):
        return None
    angle = torch.atan2(orbit_N2[:, 1], orbit_N2[:, 0])
    # The short way round, from −π to π: a hand of fewer than two rows a turn would be seen to turn backwards.
    steps = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
    slope, r2 = fit_line(torch.cat([angle[:1], angle[0] + steps.cumsum(0)]))
    return 2 * math.pi / abs(slope) if r2 > 0.9999 and slope != 0 else None


@dataclass(frozen=True)
class SpectralLine:
    """One frequency of a table: a pair of vectors across its channels, and how well they hold along the rows.

    Attributes:
        frequency: in radians per row; of a line with ``parts`` their mean speed.
        plane_2D: the amplitudes of cosine and sine in each of the D channels, for rows counted from the middle.
        share: of the table's variance.
        agreement: between the first and the last three quarters of the rows.
        roundness: the short axis of the orbit over its long axis: 1 for a circle, 0 for a straight line.
        error: the standard error of the frequency, in radians per row.
        columns: the channels, two or more, that hold this line and nothing else; None where it lies across channels.
        parts: neighbouring lines in one plane that make up one hand whose speed or size varies.
    """

    frequency: float
    plane_2D: Array
    share: float
    agreement: float
    roundness: float
    error: float = 0.0
    columns: tuple[int, ...] | None = None
    parts: tuple[SpectralLine, ...] = ()

    @property
    def amplitude_D(self) -> NDArray[np.complex128]:
        """The complex amplitude in every channel."""
        return self.plane_2D[0] - 1j * self.plane_2D[1]

    @property
    def period(self) -> float:
        """Rows in one full turn."""
        return 2 * np.pi / self.frequency

    def compute_rows(self, count: int) -> Array:
        """Compute what the line adds to each of ``count`` rows: [count, D]."""
        if self.parts:
            return np.asarray(sum(part.compute_rows(count) for part in self.parts), dtype=np.float64)
        return np.asarray(make_waves(make_times(count), np.array([self.frequency])) @ self.plane_2D, dtype=np.float64)


@dataclass(frozen=True)
class TableLines:
    """The lines of a table, the fastest first, and what they were compared with.

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

    rotating: tuple[SpectralLine, ...] = ()
    oscillating: tuple[SpectralLine, ...] = ()
    needed: float = LEAST_AGREEMENT
    best_other: float = 0.0
    by_chance: float = 0.0
    surrogates: int = 0
    best_surrogate: float = 0.0
    least_turns: int = round(LEAST_TURNS)


NO_LINES = TableLines()
"""What is found in a table that holds nothing to look at."""


def find_lines(table: Array) -> TableLines:
    """Find what rotates at constant speed all along the rows [N, D] of a table.

    Pairs of columns that hold one line each come first. In the rest, where channels may be mixed in any way, the rows
    are whitened by one autoregressive coefficient, and the highest peak of the summed periodogram is added to a model
    whose frequencies are all refined together (variable projection, Golub & Pereyra 1973), and so on.
    """
    rows = table - table.mean(0)
    variance = float((rows**2).mean(0).sum())
    if variance <= 1e-18 * float((table**2).mean(0).sum()):
        return NO_LINES
    own = max(([*_fit_pairs(rows, pairs, variance)] for pairs in list_pairings(rows.shape[1])), key=len)
    rest = rows - sum((line.compute_rows(len(rows)) for line in own), np.zeros_like(rows))
    mixed = _find_mixed(rest - rest.mean(0), variance)
    rotating: list[SpectralLine] = []
    for line in sorted(own, key=lambda line: -line.frequency):
        _join(rotating, line, 1e-3 * line.frequency)
    for line in mixed.rotating:
        _join(rotating, line, LEAST_SEPARATION * 2 * np.pi / len(rows))
    return replace(mixed, rotating=tuple(sorted(rotating, key=lambda line: -line.frequency)))


def _fit_pairs(rows: Array, pairs: list[tuple[int, int]], variance: float) -> Iterator[SpectralLine]:
    """Yield the line of each pair of columns that is one circle and little else, however close their speeds are."""
    for pair in pairs:
        columns = rows[:, pair]
        squares = float((columns**2).sum())
        if squares <= LEAST_SHARE * variance * len(rows):
            continue
        peak = np.array([find_peak(columns, np.zeros(0))[0]])
        if ((make_waves(make_times(len(rows)), peak).T @ columns) ** 2).sum() < 0.3 * squares * len(rows):
            continue
        model = refine_frequencies(columns, peak, np.ones((len(rows), 1)), steps=8)
        plane_2D = np.zeros((2, rows.shape[1]))
        plane_2D[:, pair] = model.amplitudes
        agreement = float(measure_agreement(columns, model.frequencies)[0])
        line = _make_line(model.frequencies[0], plane_2D, variance, agreement, model.compute_standard_errors()[0], pair)
        is_alone = line.roundness > 0.8 and float((model.residual**2).sum()) < 0.05 * squares
        if is_alone and agreement > LEAST_AGREEMENT and line.frequency >= LEAST_TURNS * 2 * np.pi / len(rows):
            yield line


def _make_line(
    frequency: float, plane_2D: Array, variance: float, agreement: float, error: float,
    columns: tuple[int, ...] | None = None,
) -> SpectralLine:  # fmt: skip
    # The orbit of a cos ωt + b sin ωt is an ellipse whose half axes are the singular values of [a, b].
    axes = np.linalg.svd(plane_2D, compute_uv=False)
    roundness = float(axes[-1] / axes[0]) if len(axes) > 1 and axes[0] > 0 else 0.0
    share = float((axes**2).sum() / 2 / variance)
    return SpectralLine(float(frequency), plane_2D, share, float(agreement), roundness, float(error), columns)


def _join(lines: list[SpectralLine], line: SpectralLine, within: float) -> None:
    """Add a line; it is joined with one in columns of its own whose frequency is nearer than ``within``.

    Pairs of columns at one speed are one hand, whose agreement and roundness are the least of theirs. Two columns of a
    mixed hand may happen to show a circle, and are then a part of it again.
    """
    same = next((other for other in lines if other.columns and abs(other.frequency - line.frequency) < within), None)
    if same is not None:
        lines.remove(same)
        plane_2D = line.plane_2D if line.parts else same.plane_2D + line.plane_2D
        joined = replace(line, plane_2D=plane_2D, share=same.share + line.share)
        if line.columns and same.columns:
            least = {key: min(getattr(same, key), getattr(line, key)) for key in ("agreement", "roundness")}
            columns = tuple(sorted((*same.columns, *line.columns)))
            joined = replace(joined, frequency=same.frequency, error=same.error, columns=columns, **least)
        line = joined
    lines.append(line)


def _find_mixed(rows: Array, variance: float) -> TableLines:
    """Find lines that lie across channels; ``variance`` is that of the whole table."""
    if float((rows**2).sum()) <= 1e-12 * variance * len(rows):
        return NO_LINES
    before, after = rows[:-1], rows[1:]
    # Burg's coefficient φ, for all channels together; its filter x_t − φ x_(t−1) whitens them.
    past = 2 * float((before * after).sum()) / max(float((before**2).sum() + (after**2).sum()), 1e-300)
    whitened, components = _project_on_components(after - past * before)
    trend = np.linalg.qr(make_trend(len(rows)))[0]
    steep = len(rows) >= STEEP_ROWS and bool(((trend.T @ rows) ** 2).sum() > STEEP_SHARE * (rows**2).sum())
    model, least_turns = _search(whitened, steep), STEEP_TURNS if steep else LEAST_TURNS
    agreements = measure_agreement(whitened, model.frequencies, steep=steep) if len(model.frequencies) else np.zeros(0)
    lines = []
    for index, (frequency, error) in enumerate(zip(model.frequencies, model.compute_standard_errors(), strict=True)):
        cosine, sine = model.amplitudes[2 * index : 2 * index + 2]
        # A wave of amplitude c leaves the filter with c (1 − φ e^(−iω)), half a row later.
        amplitude = (cosine - 1j * sine) / (1 - past * np.exp(-1j * frequency)) * np.exp(-0.5j * frequency)
        plane_2D = np.stack([amplitude.real, -amplitude.imag]) @ components
        line = _make_line(frequency, plane_2D, variance, agreements[index], error)
        if line.frequency >= least_turns * 2 * np.pi / len(rows) and line.share >= LEAST_SHARE:
            lines.append(line)
    leaves_noise = float((model.residual**2).sum()) > 1e-12 * float((whitened**2).sum())
    noise = _project_on_components(model.residual)[0]
    surrogates = [*measure_surrogates(noise, steep=steep)] if leaves_noise else []
    # A line must agree better than any in the surrogates, and than ``LEAST_AGREEMENT`` in any case.
    best = max((float(agreements.max()) for agreements in surrogates), default=0.0)
    needed = max(LEAST_AGREEMENT, best)
    kept = _gather_hands([line for line in lines if line.agreement > needed], len(rows))
    by_chance = [(agreements > LEAST_AGREEMENT).sum() for agreements in surrogates] or [0]
    return TableLines(
        rotating=tuple(line for line in kept if line.roundness >= LEAST_ROUNDNESS),
        oscillating=tuple(line for line in kept if line.roundness < LEAST_ROUNDNESS),
        needed=needed,
        best_other=max((line.agreement for line in lines if line.agreement <= needed), default=0.0),
        by_chance=float(np.mean(by_chance)),
        surrogates=len(surrogates),
        best_surrogate=best,
        least_turns=round(least_turns),
    )


def _project_on_components(rows: Array) -> tuple[Array, Array]:
    """Return rows [N, D] in their leading principal components, at most ``MOST_COMPONENTS``, and these: [C, D]."""
    u, s, vt = np.linalg.svd(rows, full_matrices=False)
    count = max(1, min(MOST_COMPONENTS, int((s > 1e-9 * s[0]).sum())))
    return u[:, :count] * s[:count], vt[:count]


def _search(rows: Array, steep: bool) -> WaveModel:
    """Add lines to a model one by one, until ``PATIENCE`` of them did not agree with themselves.

    A line counts half there if it stands out of the noise or cannot be fitted beside the others.
    """
    trend = make_trend(len(rows), steep=steep)
    model = fit_waves(rows, np.zeros(0), trend)
    # So many that each end of the table has at least twice as many rows as the fit has columns.
    most = min(MOST_LINES, int((END_PART * len(rows) / 2 - trend.shape[1]) / 2))
    total, failures, rejected = float((rows**2).sum()), 0.0, np.zeros(0)
    while len(model.frequencies) < most and failures < PATIENCE:
        frequency, height = find_peak(model.residual, np.append(model.frequencies, rejected))
        if height == 0 or float((model.residual**2).sum()) < 1e-12 * total:
            break
        extended = refine_frequencies(rows, np.append(model.frequencies, frequency), trend, steps=2)
        if _are_inseparable(extended):
            rejected, failures = np.append(rejected, frequency), failures + 0.5
            continue
        model = extended
        if measure_agreement(rows, model.frequencies, steep=steep)[-1] < LEAST_AGREEMENT:
            failures += 1 if height < 3 else 0.5
    final = refine_frequencies(rows, model.frequencies, trend, steps=15) if len(model.frequencies) else model
    return model if _are_inseparable(final) else final


def _are_inseparable(model: WaveModel) -> bool:
    """Tell whether two frequencies are so close that their amplitudes cannot be told apart."""
    gaps = np.diff(np.sort(model.frequencies)) * len(model.residual)
    return bool((gaps < LEAST_SEPARATION * 2 * np.pi).any())


def _gather_hands(lines: list[SpectralLine], num_rows: int) -> list[SpectralLine]:
    """Make neighbouring lines that turn the same way in one plane one line whose speed varies; the fastest first.

    It is that of the strongest, with the mean speed of their sum.
    """
    groups: list[list[SpectralLine]] = []
    for line in sorted(lines, key=lambda line: -line.frequency):
        last = groups[-1][-1] if groups else line
        reach = max(SAME_HAND_TURNS * 2 * np.pi / num_rows, SAME_HAND_SPEED * line.frequency)
        # |⟨a, b⟩| / (|a| |b|) of complex amplitudes is 1 in one plane turning one way, 0 in another or the other way.
        sizes = np.linalg.norm(last.amplitude_D) * np.linalg.norm(line.amplitude_D)
        in_plane = float(np.abs(np.vdot(last.amplitude_D, line.amplitude_D))) > 0.5 * sizes
        if groups and last.frequency - line.frequency < reach and in_plane:
            groups[-1].append(line)
        else:
            groups.append([line])
    hands = []
    for parts in groups:
        hand = strongest = max(parts, key=lambda line: line.share)
        if len(parts) > 1:
            hand = replace(strongest, parts=tuple(parts), agreement=min(part.agreement for part in parts))
            rows = hand.compute_rows(num_rows)
            angle = np.unwrap(np.angle(rows @ strongest.amplitude_D.conj()))
            speed = abs(float(np.polyfit(make_times(num_rows), angle, 1)[0]))
            larger = float((rows**2).sum()) / float((strongest.compute_rows(num_rows) ** 2).sum())
            hand = replace(hand, frequency=speed, share=strongest.share * larger)
        hands.append(hand)
    return hands
