"""Clock hands of a table of positions: what rotates at constant speed from its first row to its last.

1. Waves of several frequencies are fitted to the rows together (``WaveFit``; Golub & Pereyra 1973).
2. Each is judged by its *agreement*: its amplitudes in the first three quarters of the rows and in the last must be the
   same complex numbers. Power proves nothing: any two columns of a smooth table look like a slow circle.
3. Chance is seen in surrogates: tables with the spectrum of what the waves leave, and random phases (Theiler et al.
   1992).

Rows are counted from the middle of the table, and a frequency is in radians per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from clockhands.inspection.estimators.matrix_statistics import list_pairings

Array: TypeAlias = NDArray[np.float64]
"""Real numbers in float64; the docstrings name the axes."""

LEAST_TURNS, STEEP_TURNS = 1.98, 2.98
"""A line must turn twice within the table, less the accuracy of 1 % that is asked of its period; three times beside a
steep trend, from which two turns cannot be told."""
STEEP_SHARE, STEEP_ROWS, DECAY_RATES = 0.3, 32, (4.0, 12.0, 36.0)
"""The share of its variance and the rows from which a table's trend is fitted with decays exp(−r · row / rows) too."""
LEAST_AGREEMENT, LEAST_SHARE, LEAST_ROUNDNESS = 0.85, 1e-4, 1 / 3
"""The least agreement, share of the variance and roundness (short axis of the orbit over the long one) of a hand."""
END_PART = 0.75
"""The part of the rows in each of the two ends whose amplitudes are compared: the first rows and the last."""
LEAST_SEPARATION = 0.5
"""Turns within the table by which two lines must differ to be fitted together."""
SAME_HAND_TURNS, SAME_HAND_SPEED = 3.0, 0.15
"""Neighbouring lines in one plane are one hand if they differ by so many turns, or this part of the speed, at most."""
MOST_LINES, MOST_COMPONENTS = 48, 128
"""Lines that are fitted to a table, and principal components that are kept of it, at most."""
SURROGATES, PATIENCE = 120, 8
"""Surrogates that are drawn, and lines that are looked for in each."""


def make_times(count: int) -> Array:
    """Return the numbers of ``count`` rows, counted from the middle of the table: [count]."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def make_trend(count: int, half_waves: int = 2, *, steep: bool = False) -> Array:
    """Return the columns of what a table may hold besides lines: a constant, half waves and a straight line.

    ``steep`` adds decays, which come near to any trend that flattens along the table, such as a logarithm; half waves
    alone leave much of it, which would look like slow lines.
    """
    fraction = (np.arange(count) + 0.5) / count
    decays = np.exp(-np.outer(fraction, DECAY_RATES if steep else ()))
    return np.column_stack([*(np.cos(np.pi * j * fraction) for j in range(half_waves + 1)), fraction, decays])


def make_waves(times: Array, frequencies: Array) -> Array:
    """Return cosine and sine of every frequency at every time: [times, 2F], the two of one frequency side by side."""
    angle = np.outer(times, frequencies)
    return np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(len(times), -1)


class WaveFit:
    """A least-squares fit of F sinusoids and a trend [N, columns] to ``rows`` [N, D].

    ``amplitudes`` [2F, D] hold for each of the ``frequencies`` [F] one row for the cosine and one for the sine.
    ``residual`` [N, D] is what the fit leaves, ``left`` the sum of its squares.
    """

    def __init__(self, rows: Array, frequencies: Array, trend: Array) -> None:
        self.rows, self.frequencies, self.trend = rows, frequencies, trend
        # With X = QR the fit is QQᵀ rows, and the amplitudes solve R a = Qᵀ rows.
        waves = make_waves(make_times(len(rows)), frequencies)
        self.basis, upper = np.linalg.qr(np.concatenate([trend, waves], axis=1))
        coordinates = self.basis.T @ rows
        self.amplitudes = np.linalg.lstsq(upper, coordinates, rcond=1e-8)[0][trend.shape[1] :]
        self.residual = rows - self.basis @ coordinates
        self.left = float((self.residual**2).sum())

    def linearise(self) -> tuple[Array, Array]:
        """Return the normal matrix [F, F] and the right side [F] of Gauss-Newton, the amplitudes solved for."""
        count, times = len(self.frequencies), make_times(len(self.residual))
        angle = np.outer(times, self.frequencies)
        # ∂/∂ω of a cos ωt + b sin ωt is t (−a sin ωt + b cos ωt).
        slopes = (np.stack([-np.sin(angle), np.cos(angle)], axis=2) * times[:, None, None]).reshape(len(times), -1)
        gradient = ((slopes.T @ self.residual) * self.amplitudes).reshape(count, -1).sum(1)
        # What the amplitudes could take up at once is no change of a frequency (Kaufman 1975).
        slopes -= self.basis @ (self.basis.T @ slopes)
        products = (slopes.T @ slopes) * (self.amplitudes @ self.amplitudes.T)
        return products.reshape(count, 2, count, 2).sum((1, 3)), gradient

    def compute_standard_errors(self) -> Array:
        """Return the standard error [F] of each frequency, in radians per row; it holds for a white residual."""
        if not len(self.frequencies):
            return np.zeros(0)
        degrees = self.residual.shape[1] * max(len(self.residual) - self.basis.shape[1], 1)
        inverse = np.linalg.pinv(self.linearise()[0], hermitian=True)
        return np.asarray(np.sqrt(np.maximum(np.diag(inverse), 0) * self.left / degrees), dtype=np.float64)

    def refine(self, steps: int) -> WaveFit:
        """Move all frequencies together to where the least is left of the rows, by damped Gauss-Newton.

        There are at most so many ``steps``; one in which the residual falls by less than 1e-9 of itself is the last.
        """
        fit, damping, longest_step = self, 1e-3, np.pi / 2 / len(self.rows)
        for _ in range(steps):
            normal, gradient = fit.linearise()
            better = None
            while better is None and damping < 1e2:
                damped = normal + np.diag(damping * np.diag(normal) + 1e-300)
                step = np.linalg.lstsq(damped, gradient, rcond=None)[0]
                moved = fit.frequencies + np.clip(step, -longest_step, longest_step)
                if moved.min() > 0 and moved.max() < np.pi:
                    trial = WaveFit(self.rows, moved, self.trend)
                    better = trial if trial.left < fit.left else None
                damping *= 10
            if better is None:
                break
            gain, fit, damping = 1 - better.left / fit.left, better, max(damping / 100, 1e-6)
            if gain < 1e-9:
                break
        return fit

    @property
    def is_inseparable(self) -> bool:
        """Whether two frequencies are so close that their amplitudes cannot be told apart."""
        gaps = np.diff(np.sort(self.frequencies)) * len(self.residual)
        return bool((gaps < LEAST_SEPARATION * 2 * np.pi).any())


def _compute_periodogram(rows: Array, padding: int) -> tuple[Array, Array]:
    """Return a grid of turns per row and the power there, summed over channels, of rows padded ``padding`` times."""
    length = 1 << int(np.ceil(np.log2(padding * len(rows))))
    power = (np.abs(np.fft.rfft(rows, length, axis=0)) ** 2).sum(1)
    return np.arange(len(power)) / length, power


def find_peak(residual: Array, excluded: Array) -> tuple[float, float]:
    """Return the frequency of the highest peak that is not near the ``excluded``, and its height over the median.

    (0, 0) where nothing is left.
    """
    count = len(residual)
    turns_per_row, power = _compute_periodogram(residual, 8)  # so that the peak lies close to a grid point
    free = (turns_per_row >= 1 / count) & (turns_per_row <= 0.5 - 0.5 / count)
    for center in excluded / (2 * np.pi):
        free &= np.abs(turns_per_row - center) > LEAST_SEPARATION / count
    if not free.any() or not power[free].any():
        return 0.0, 0.0
    peak = int(np.where(free, power, -1).argmax())
    return 2 * np.pi * float(turns_per_row[peak]), float(power[peak] / max(np.median(power[free]), 1e-300))


def measure_agreement(rows: Array, frequencies: Array, *, steep: bool = False) -> Array:
    """Measure how well the amplitudes of each line agree between the first and the last three quarters of the rows.

    The agreement [F] is 2 Re⟨c₁, c₂⟩ / (|c₁|² + |c₂|²) over the channels, where c₁ and c₂ are the complex amplitudes
    fitted to the two ends with all lines together: 1 only if size and phase are the same in every channel.
    """
    count, times = len(rows), make_times(len(rows))
    length = round(END_PART * count)
    decays, amplitudes = make_trend(count, steep=steep)[:, 4:], []
    for end in (slice(0, length), slice(count - length, count)):
        trend = np.concatenate([make_trend(length, 1), decays[end]], axis=1)
        basis = np.concatenate([trend, make_waves(times[end], frequencies)], axis=1)
        solution = np.linalg.lstsq(basis, rows[end], rcond=1e-6)[0][trend.shape[1] :]
        amplitudes.append(solution.reshape(len(frequencies), -1))
    first, last = amplitudes
    return 2 * (first * last).sum(1) / np.maximum((first**2 + last**2).sum(1), 1e-300)


def measure_surrogates(noise: Array, *, steep: bool = False) -> Iterator[Array]:
    """Yield how well the best lines agree of tables with the spectrum of ``noise`` [N, C] and random phases."""
    rng, spectrum = np.random.default_rng(0), np.fft.rfft(noise, axis=0)
    trend = np.linalg.qr(make_trend(len(noise), steep=steep))[0]
    for _ in range(SURROGATES):
        # The same power at every frequency, and nothing that holds together from row to row.
        phases = np.exp(2j * np.pi * rng.random(spectrum.shape))
        rows = np.fft.irfft(spectrum * phases, len(noise), axis=0)
        rows = rows - trend @ (trend.T @ rows)
        turns_per_row, power = _compute_periodogram(rows, 2)
        power[(turns_per_row < LEAST_TURNS / len(rows)) | (turns_per_row > 0.5 - 0.5 / len(rows))] = 0
        strongest: list[float] = []
        for _ in range(min(PATIENCE, max(1, len(rows) // 16))):
            strongest.append(float(turns_per_row[int(power.argmax())]))
            power[np.abs(turns_per_row - strongest[-1]) < 1 / len(rows)] = 0
        yield measure_agreement(rows, 2 * np.pi * np.array(strongest), steep=steep)


@dataclass(frozen=True)
class SpectralLine:
    """One frequency of a table, in radians per row, with its standard ``error``, and how well it holds along the rows.

    ``plane_2D`` are the amplitudes of cosine and sine in each of D channels. ``share`` is that of the table's variance,
    ``roundness`` the short axis of the orbit over its long one. ``columns`` hold this line and nothing else; None where
    it lies across channels. ``parts`` are neighbouring lines in one plane that make up one hand whose speed or size
    varies; ``frequency`` is then their mean speed.
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
        times = make_times(count)
        added = [make_waves(times, np.array([line.frequency])) @ line.plane_2D for line in self.parts or (self,)]
        return np.asarray(sum(added), dtype=np.float64)


@dataclass(frozen=True)
class TableLines:
    """The lines of a table, the fastest first, and what they were compared with.

    The orbits of ``rotating`` lines are round enough for a clock hand, those of ``oscillating`` ones are flat.
    ``needed`` is the agreement that a line had to exceed, ``best_other`` the best of one that did not (0: there was
    none). Of ``surrogates`` tables without hands (0 where the lines leave no noise) ``best_surrogate`` is the best
    agreement of a line, ``by_chance`` the mean number of lines above ``LEAST_AGREEMENT``. ``least_turns`` is how often
    a line across columns had to turn.
    """

    rotating: tuple[SpectralLine, ...] = ()
    oscillating: tuple[SpectralLine, ...] = ()
    needed: float = LEAST_AGREEMENT
    best_other: float = 0.0
    by_chance: float = 0.0
    surrogates: int = 0
    best_surrogate: float = 0.0
    least_turns: int = round(LEAST_TURNS)


def find_lines(table: Array) -> TableLines:
    """Find what rotates at constant speed all along the rows [N, D] of a table.

    Pairs of columns that hold one line each come first, then the rest, where channels may be mixed in any way.
    """
    rows = table - table.mean(0)
    variance = float((rows**2).mean(0).sum())
    if variance <= 1e-18 * float((table**2).mean(0).sum()):
        return TableLines()
    own = max((fit_pairs(rows, pairs, variance) for pairs in list_pairings(rows.shape[1])), key=len)
    rest = rows - sum((line.compute_rows(len(rows)) for line in own), np.zeros_like(rows))
    mixed = _find_mixed(rest - rest.mean(0), variance)
    rotating: list[SpectralLine] = []
    for line in sorted(own, key=lambda line: -line.frequency):
        join(rotating, line, 1e-3 * line.frequency)
    for line in mixed.rotating:
        join(rotating, line, LEAST_SEPARATION * 2 * np.pi / len(rows))
    return replace(mixed, rotating=tuple(sorted(rotating, key=lambda line: -line.frequency)))


def fit_pairs(rows: Array, pairs: Sequence[tuple[int, int]], variance: float) -> list[SpectralLine]:
    """Return the line of each pair of columns that is one circle and little else, however close their speeds are."""
    lines = []
    for pair in pairs:
        columns = rows[:, pair]
        squares = float((columns**2).sum())
        if squares <= LEAST_SHARE * variance * len(rows):
            continue
        peak = np.array([find_peak(columns, np.zeros(0))[0]])
        if ((make_waves(make_times(len(rows)), peak).T @ columns) ** 2).sum() < 0.3 * squares * len(rows):
            continue
        fit = WaveFit(columns, peak, np.ones((len(rows), 1))).refine(steps=8)
        plane_2D = np.zeros((2, rows.shape[1]))
        plane_2D[:, pair] = fit.amplitudes
        agreement = float(measure_agreement(columns, fit.frequencies)[0])
        line = _make_line(fit.frequencies[0], plane_2D, variance, agreement, fit.compute_standard_errors()[0], pair)
        is_alone = line.roundness > 0.8 and fit.left < 0.05 * squares
        if is_alone and agreement > LEAST_AGREEMENT and line.frequency >= LEAST_TURNS * 2 * np.pi / len(rows):
            lines.append(line)
    return lines


def _make_line(
    frequency: float, plane_2D: Array, variance: float, agreement: float, error: float,
    columns: tuple[int, ...] | None = None,
) -> SpectralLine:  # fmt: skip
    # The orbit of a cos ωt + b sin ωt is an ellipse whose half axes are the singular values of [a, b].
    axes = np.linalg.svd(plane_2D, compute_uv=False)
    roundness = float(axes[-1] / axes[0]) if len(axes) > 1 and axes[0] > 0 else 0.0
    share = float((axes**2).sum() / 2 / variance)
    return SpectralLine(float(frequency), plane_2D, share, float(agreement), roundness, float(error), columns)


def join(lines: list[SpectralLine], line: SpectralLine, within: float) -> None:
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


def project_on_components(rows: Array) -> tuple[Array, Array]:
    """Return rows [N, D] in their leading principal components, at most ``MOST_COMPONENTS``, and these: [C, D]."""
    u, s, vt = np.linalg.svd(rows, full_matrices=False)
    count = max(1, min(MOST_COMPONENTS, int((s > 1e-9 * s[0]).sum())))
    return u[:, :count] * s[:count], vt[:count]


def _find_mixed(rows: Array, variance: float) -> TableLines:
    """Find lines that lie across channels; ``variance`` is that of the whole table."""
    if float((rows**2).sum()) <= 1e-12 * variance * len(rows):
        return TableLines()
    before, after = rows[:-1], rows[1:]
    # Burg's coefficient φ, for all channels together; its filter x_t − φ x_(t−1) whitens them.
    past = 2 * float((before * after).sum()) / max(float((before**2).sum() + (after**2).sum()), 1e-300)
    whitened, components = project_on_components(after - past * before)
    trend = np.linalg.qr(make_trend(len(rows)))[0]
    steep = len(rows) >= STEEP_ROWS and bool(((trend.T @ rows) ** 2).sum() > STEEP_SHARE * (rows**2).sum())
    fit, least_turns = _search(whitened, steep), STEEP_TURNS if steep else LEAST_TURNS
    agreements = measure_agreement(whitened, fit.frequencies, steep=steep) if len(fit.frequencies) else np.zeros(0)
    lines = []
    for index, (frequency, error) in enumerate(zip(fit.frequencies, fit.compute_standard_errors(), strict=True)):
        cosine, sine = fit.amplitudes[2 * index : 2 * index + 2]
        # A wave of amplitude c leaves the filter with c (1 − φ e^(−iω)), half a row later.
        amplitude = (cosine - 1j * sine) / (1 - past * np.exp(-1j * frequency)) * np.exp(-0.5j * frequency)
        plane_2D = np.stack([amplitude.real, -amplitude.imag]) @ components
        line = _make_line(frequency, plane_2D, variance, agreements[index], error)
        if line.frequency >= least_turns * 2 * np.pi / len(rows) and line.share >= LEAST_SHARE:
            lines.append(line)
    leaves_noise = fit.left > 1e-12 * float((whitened**2).sum())
    noise = project_on_components(fit.residual)[0]
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


def _search(rows: Array, steep: bool) -> WaveFit:
    """Add the highest peak of what is left to a fit whose frequencies are all refined together, and so on.

    It ends when ``PATIENCE`` lines did not agree with themselves. One counts half there if it stands out of the noise
    or cannot be fitted beside the others.
    """
    trend = make_trend(len(rows), steep=steep)
    fit = WaveFit(rows, np.zeros(0), trend)
    # So many that each end of the table has at least twice as many rows as the fit has columns.
    most = min(MOST_LINES, int((END_PART * len(rows) / 2 - trend.shape[1]) / 2))
    total, failures, rejected = float((rows**2).sum()), 0.0, np.zeros(0)
    while len(fit.frequencies) < most and failures < PATIENCE:
        frequency, height = find_peak(fit.residual, np.append(fit.frequencies, rejected))
        if height == 0 or fit.left < 1e-12 * total:
            break
        extended = WaveFit(rows, np.append(fit.frequencies, frequency), trend).refine(steps=2)
        if extended.is_inseparable:
            rejected, failures = np.append(rejected, frequency), failures + 0.5
            continue
        fit = extended
        if measure_agreement(rows, fit.frequencies, steep=steep)[-1] < LEAST_AGREEMENT:
            failures += 1 if height < 3 else 0.5
    final = fit.refine(steps=15) if len(fit.frequencies) else fit
    return fit if final.is_inseparable else final


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
