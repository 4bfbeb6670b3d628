"""Spectral lines of a table: what turns at constant speed from its first row to its last, and how sure that is.

A smooth table (a random walk, filtered noise, a trend) has large and smooth columns, and any two of them look like a
slow circle. So a line is not judged by its power but by its agreement: its amplitude in every channel, fitted to the
first three quarters of the rows and again to the last three quarters, must be the same complex number. Noise agrees
only as far as the rows are the same ones. How well noise agrees at best depends on how many channels are independent,
so it is simulated with the table's own noise: surrogates with randomised phases, and with an autoregressive fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

FEWEST_TURNS = 1.98
"""A line must turn twice within the table (less the accuracy that is asked of its period)."""
AGREEMENT = 0.85
"""The least agreement of a line; of noise in many channels two thirds are expected, and at most 0.8 were seen."""
SURROGATES = 60
"""Of each kind. A line must agree better than the best line in each of them."""
SMALLEST_SHARE = 1e-4
"""Lines with less of the table's variance are left aside: what leaks from a trend can be so large."""
ROUND = 1 / 3
"""The least ratio of an orbit's short axis to its long one; below it a line swings and does not turn."""
WINDOW = 0.75
BESIDE, NEAR = 3.0, 0.15
"""Turns within the table, and share of the speed, by which lines in one plane may differ that are one hand."""
CLOSEST = 0.5
"""Turns within the table by which lines must differ to be fitted together."""
MOST_LINES = 48
MOST_CHANNELS = 128
PATIENCE = 8


@dataclass(frozen=True)
class Line:
    """One frequency, in radians per row: its two vectors, and how well they hold.

    ``plane_2D`` are the amplitudes of cosine and sine in each of the D channels, for rows counted from the middle;
    ``share`` is the share of the table's variance, ``agreement`` of its two ends (1: the same line in both),
    ``roundness`` the short axis of its orbit over the long one (1: a circle, 0: it swings on a straight line),
    ``error`` the standard error of the frequency, ``columns`` the two channels that are this line alone. ``parts`` are
    the lines that make up one whose speed or size varies: ``frequency`` is then its mean speed.
    """

    frequency: float
    plane_2D: Array
    share: float
    agreement: float
    roundness: float
    error: float = 0.0
    columns: tuple[int, int] | None = None
    parts: tuple[Line, ...] = ()

    @property
    def amplitude_D(self) -> NDArray[np.complex128]:
        """The complex amplitude in every channel."""
        return self.plane_2D[0] - 1j * self.plane_2D[1]

    def waves(self, count: int) -> Array:
        """What it adds to each of ``count`` rows."""
        if self.parts:
            return np.asarray(sum(part.waves(count) for part in self.parts), dtype=np.float64)
        return np.asarray(waves(_times(count), np.array([self.frequency])) @ self.plane_2D, dtype=np.float64)

    @property
    def period(self) -> float:
        """Rows in one turn."""
        return 2 * np.pi / self.frequency


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
    white, axes = _leading(rows[1:] - coefficient * rows[:-1])
    model = _search(white)
    lines = _lines(model, white, axes, coefficient, power) if len(model.frequencies) else []
    slow = FEWEST_TURNS * 2 * np.pi / len(rows)
    lines = [line for line in lines if line.frequency >= slow and line.share >= SMALLEST_SHARE]
    if float((model.residual**2).sum()) <= 1e-12 * float((white**2).sum()):
        return _spectrum(lines, [], len(rows))
    surrogates = list(_surrogates(model.residual, np.random.default_rng(seed)))
    return _spectrum(lines, surrogates, len(rows))


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
    speed = abs(float(np.polyfit(_times(count), angle, 1)[0]))
    total, alone = float((path**2).sum()), float((strongest.waves(count) ** 2).sum())
    agreement = min(part.agreement for part in parts)
    return replace(line, frequency=speed, share=strongest.share * total / alone, agreement=agreement)


def burg(rows_nD: Array, order: int) -> Array:
    """The coefficients 1, a₁ … of one autoregression for all channels (Burg's method with pooled sums)."""
    ahead, back, found = rows_nD[1:], rows_nD[:-1], np.ones(1)
    for _ in range(order):
        power = float((ahead**2).sum() + (back**2).sum())
        reflection = -2 * float((ahead * back).sum()) / power if power > 0 else 0.0
        longer = np.append(found, 0.0)
        found = longer + reflection * longer[::-1]
        ahead, back = (ahead + reflection * back)[1:], (back + reflection * ahead)[:-1]
    return found


def _leading(rows_nD: Array) -> tuple[Array, Array]:
    """Coordinates in the leading principal components, and these."""
    u, s, vt = np.linalg.svd(rows_nD, full_matrices=False)
    kept = max(1, min(MOST_CHANNELS, int((s > 1e-9 * s[0]).sum())))
    return u[:, :kept] * s[:kept], vt[:kept]


@dataclass
class _Model:
    """Lines fitted together: their frequencies, amplitudes (cosine and sine in turns) and what is left."""

    frequencies: Array
    amplitudes: Array
    residual: Array
    basis: Array

    def normal(self) -> Array:
        """The matrix of the normal equations of the frequencies, amplitudes solved for."""
        count = len(self.frequencies)
        slopes = _slopes(_times(len(self.residual)), self.frequencies)
        slopes -= self.basis @ (self.basis.T @ slopes)
        products = (slopes.T @ slopes) * (self.amplitudes @ self.amplitudes.T)
        return products.reshape(count, 2, count, 2).sum((1, 3))

    def gradient(self) -> Array:
        """Their right side."""
        slopes = _slopes(_times(len(self.residual)), self.frequencies)
        return ((slopes.T @ self.residual) * self.amplitudes).reshape(len(self.frequencies), -1).sum(1)

    def errors(self) -> Array:
        """Standard errors of the frequencies, for residuals that are white."""
        freedom = self.residual.shape[1] * max(len(self.residual) - self.basis.shape[1], 1)
        variance = float((self.residual**2).sum()) / freedom
        inverse = np.linalg.pinv(self.normal(), hermitian=True)
        return np.asarray(np.sqrt(np.maximum(np.diag(inverse), 0) * variance), dtype=np.float64)


def _times(count: int) -> Array:
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def slow_basis(count: int, waves: int = 2) -> Array:
    """What a table may hold besides lines: a constant, a straight line and half waves."""
    place = (np.arange(count) + 0.5) / count
    return np.stack([*(np.cos(np.pi * j * place) for j in range(waves + 1)), place], axis=1)


def waves(times: Array, frequencies: Array) -> Array:
    """Cosine and sine of every frequency, in turns."""
    angle = np.outer(times, frequencies)
    return np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(len(times), -1)


def _slopes(times: Array, frequencies: Array) -> Array:
    """The derivative of ``waves`` by its frequencies."""
    angle = np.outer(times, frequencies)
    slopes = np.stack([-np.sin(angle), np.cos(angle)], axis=2) * times[:, None, None]
    return slopes.reshape(len(times), -1)


def _fit(rows: Array, frequencies: Array, slow: Array) -> _Model:
    basis, upper = np.linalg.qr(np.concatenate([slow, waves(_times(len(rows)), frequencies)], axis=1))
    inner = basis.T @ rows
    amplitudes = np.linalg.lstsq(upper, inner, rcond=1e-8)[0][slow.shape[1] :]
    return _Model(frequencies, amplitudes, rows - basis @ inner, basis)


def refine(rows: Array, frequencies: Array, slow: Array, steps: int) -> _Model:
    """Move all frequencies together to where they leave least (Gauss-Newton, damped)."""
    model, damping, longest = _fit(rows, frequencies, slow), 1e-3, np.pi / 2 / len(rows)
    for _ in range(steps):
        normal, gradient = model.normal(), model.gradient()
        better = None
        while better is None and damping < 1e2:
            damped = normal + np.diag(damping * np.diag(normal) + 1e-300)
            step = np.linalg.lstsq(damped, gradient, rcond=None)[0]
            trial = model.frequencies + np.clip(step, -longest, longest)
            if trial.min() > 0 and trial.max() < np.pi:
                fitted = _fit(rows, trial, slow)
                better = fitted if (fitted.residual**2).sum() < (model.residual**2).sum() else None
            damping *= 10
        if better is None:
            break
        gained = 1 - (better.residual**2).sum() / (model.residual**2).sum()
        model, damping = better, max(damping / 100, 1e-6)
        if gained < 1e-9:
            break
    return model


def _peak(residual: Array, taken: Array) -> tuple[float, float]:
    """The frequency of the highest peak that is no line yet, and its height over the median."""
    count = len(residual)
    length = 1 << int(np.ceil(np.log2(8 * count)))
    power = (np.abs(np.fft.rfft(residual, length, axis=0)) ** 2).sum(1)
    frequency = np.arange(len(power)) / length
    free = (frequency >= 1 / count) & (frequency <= 0.5 - 0.5 / count)
    for known in taken / (2 * np.pi):
        free &= np.abs(frequency - known) > CLOSEST / count
    if not free.any() or not power[free].any():
        return 0.0, 0.0
    place = int(np.where(free, power, -1).argmax())
    return 2 * np.pi * float(frequency[place]), float(power[place] / max(np.median(power[free]), 1e-300))


def _search(rows: Array) -> _Model:
    """Add lines until ``PATIENCE`` of them in vain did not agree with themselves; those that stand out count half."""
    slow = slow_basis(len(rows))
    model = _fit(rows, np.zeros(0), slow)
    most = min(MOST_LINES, int((WINDOW * len(rows) / 2 - slow.shape[1]) / 2))
    total, vain, tried = float((rows**2).sum()), 0.0, np.zeros(0)
    while len(model.frequencies) < most and vain < PATIENCE:
        frequency, height = _peak(model.residual, np.append(model.frequencies, tried))
        if height == 0 or float((model.residual**2).sum()) < 1e-12 * total:
            break
        longer = refine(rows, np.append(model.frequencies, frequency), slow, steps=2)
        if _crowded(longer.frequencies, len(rows)):
            tried = np.append(tried, frequency)
            vain += 0.5
            continue
        model = longer
        if agreements(rows, model.frequencies)[-1] < AGREEMENT:
            vain += 1 if height < 3 else 0.5
    if not len(model.frequencies):
        return model
    final = refine(rows, model.frequencies, slow, steps=15)
    return model if _crowded(final.frequencies, len(rows)) else final


def _crowded(frequencies: Array, count: int) -> bool:
    """Whether two lines are so close that their amplitudes cannot be told apart."""
    return bool((np.diff(np.sort(frequencies)) * count < CLOSEST * 2 * np.pi).any())


def agreements(rows: Array, frequencies: Array) -> Array:
    """How well the complex amplitudes of each line agree in the first and the last three quarters of the rows.

    2 Re⟨c₁, c₂⟩ / (|c₁|² + |c₂|²) over the channels, c₁ and c₂ fitted with all lines together: 1 if equal, 0 if
    unrelated.
    """
    count, times = len(rows), _times(len(rows))
    long = round(WINDOW * count)
    slow = slow_basis(long, 1)
    found = []
    for part in (slice(0, long), slice(count - long, count)):
        basis = np.concatenate([slow, waves(times[part], frequencies)], axis=1)
        fitted = np.linalg.lstsq(basis, rows[part], rcond=1e-6)[0][slow.shape[1] :]
        found.append(fitted.reshape(len(frequencies), -1))
    first, last = found
    return 2 * (first * last).sum(1) / np.maximum((first**2 + last**2).sum(1), 1e-300)


def _lines(model: _Model, white: Array, axes: Array, coefficient: float, power: float) -> list[Line]:
    """The lines of the table itself, from those of its whitened rows."""
    agreement, errors = agreements(white, model.frequencies), model.errors()
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


def column_lines(rows: Array, power: float) -> tuple[list[Line], Array]:
    """Read the pairs of columns that are one line each, and take them out; pairs stand as (2i, 2i+1) or (i, i + D/2).

    So a table of sinusoids as it stands gives up its lines one by one, however close they are to each other.
    """
    width = rows.shape[1] // 2
    layouts = [[(2 * i, 2 * i + 1) for i in range(width)], [(i, i + width) for i in range(width)]]
    read = max(([*_read(rows, pairs, power)] for pairs in layouts), key=len)
    rest = rows.copy()
    for line in read:
        rest -= line.waves(len(rows))
    return _merged(read), rest


def _read(rows: Array, pairs: list[tuple[int, int]], power: float) -> Iterator[Line]:
    constant = np.ones((len(rows), 1))
    fewest = FEWEST_TURNS * 2 * np.pi / len(rows)
    for pair in pairs:
        own = rows[:, pair]
        square = float((own**2).sum())
        if square <= SMALLEST_SHARE * power * len(rows):
            continue
        frequency, _ = _peak(own, np.zeros(0))
        wave = waves(_times(len(rows)), np.array([frequency]))
        if ((wave.T @ own) ** 2).sum() < 0.6 * square * len(rows) / 2:
            continue
        model = refine(own, np.array([frequency]), constant, steps=8)
        spread = np.linalg.svd(model.amplitudes, compute_uv=False)
        agreement = float(agreements(own, model.frequencies)[0])
        alone = float((model.residual**2).sum()) < 0.05 * square and spread[1] > 0.8 * spread[0]
        if alone and agreement > AGREEMENT and model.frequencies[0] >= fewest:
            plane = np.zeros((2, rows.shape[1]))
            plane[:, pair] = model.amplitudes
            share = float((spread**2).sum() / 2 / power)
            error = float(model.errors()[0])
            yield Line(float(model.frequencies[0]), plane, share, agreement, float(spread[1] / spread[0]), error, pair)


def _merged(lines: list[Line]) -> list[Line]:
    """One line of those that turn at one speed."""
    found: list[Line] = []
    for line in sorted(lines, key=lambda line: -line.frequency):
        if found and found[-1].frequency - line.frequency < 1e-3 * line.frequency:
            both = found[-1]
            plane = both.plane_2D + line.plane_2D
            found[-1] = replace(both, plane_2D=plane, share=both.share + line.share)
        else:
            found.append(line)
    return found


def _surrogates(noise: Array, rng: np.random.Generator) -> Iterator[Array]:
    """The agreements of the strongest lines in noise that is as smooth as this, and mixed over channels as this."""
    rows, _ = _leading(noise)
    for make in (_random_phases, _autoregression):
        for _ in range(SURROGATES):
            yield _strongest(make(rows, rng))


def _random_phases(rows: Array, rng: np.random.Generator) -> Array:
    """The spectrum of every component, with phases drawn at random (Theiler et al. 1992)."""
    spectrum = np.fft.rfft(rows, axis=0)
    phases = np.exp(2j * np.pi * rng.random(spectrum.shape))
    return np.fft.irfft(spectrum * phases, len(rows), axis=0)


def _autoregression(rows: Array, rng: np.random.Generator, order: int = 8) -> Array:
    """Gaussian noise with the components' variances, through the autoregression that fits them best together."""
    from scipy.signal import lfilter

    settle = len(rows)
    drawn = rng.standard_normal((settle + len(rows), rows.shape[1])) * rows.std(0)
    return lfilter([1.0], burg(rows, order), drawn, axis=0)[settle:]


def _strongest(rows: Array, count: int = PATIENCE) -> Array:
    """The agreements of the highest peaks of a periodogram."""
    slow = slow_basis(len(rows))
    basis = np.linalg.qr(slow)[0]
    rows = rows - basis @ (basis.T @ rows)
    length = 1 << int(np.ceil(np.log2(2 * len(rows))))
    power = (np.abs(np.fft.rfft(rows, length, axis=0)) ** 2).sum(1)
    frequency = np.arange(len(power)) / length
    power[(frequency < FEWEST_TURNS / len(rows)) | (frequency > 0.5 - 0.5 / len(rows))] = 0
    taken: list[float] = []
    for _ in range(min(count, max(1, len(rows) // 16))):
        best = float(frequency[int(power.argmax())])
        taken.append(2 * np.pi * best)
        power[np.abs(frequency - best) < 1 / len(rows)] = 0
    return agreements(rows, np.array(taken))
