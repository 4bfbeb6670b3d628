"""Sinusoids of several frequencies fitted together to the rows of a table, and how well each agrees with itself.

The amplitudes are solved for at every step and the frequencies moved by Gauss-Newton: variable projection, after
Golub & Pereyra 1973. Rows are counted from the middle of the table, and a frequency is in radians per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
"""Real numbers in float64; the docstrings name the axes."""

END_PART = 0.75
"""The part of the rows in each of the two ends whose amplitudes are compared: the first rows and the last."""
DECAY_RATES = (4.0, 12.0, 36.0)
"""The rates r of the decays exp(−r · row / rows) that a steep trend is fitted with."""
LEAST_SEPARATION = 0.5
"""Turns within the table by which two lines must differ to be fitted together."""
LEAST_TURNS = 1.98
"""A line must turn twice within the table, less the accuracy of 1 % that is asked of its period."""
SURROGATES, PATIENCE = 120, 8
"""Surrogates that are drawn, and lines that are looked for in each."""


@dataclass(frozen=True)
class WaveModel:
    """A least-squares fit of F sinusoids and a trend to N rows of D channels.

    ``frequencies`` [F] are in radians per row. ``amplitudes`` [2F, D] hold for each frequency one row for the cosine
    and one for the sine. ``residual`` [N, D] is what the fit leaves, ``basis`` [N, trend + 2F] an orthonormal basis of
    all that was fitted.
    """

    frequencies: Array
    amplitudes: Array
    residual: Array
    basis: Array

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
        variance = float((self.residual**2).sum()) / degrees
        return np.asarray(np.sqrt(np.maximum(np.diag(inverse), 0) * variance), dtype=np.float64)


def make_times(count: int) -> Array:
    """Return the numbers of ``count`` rows, counted from the middle of the table: [count]."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def make_trend(count: int, half_waves: int = 2, *, steep: bool = False) -> Array:
    """Return the columns of what a table may hold besides lines, a trend: [count, columns].

    They are a constant, a straight line and cosines of 1 to ``half_waves`` half waves within the table. ``steep`` adds
    decays, which come near to any trend that flattens along the table, such as a logarithm; half waves alone leave much
    of it, which would look like slow lines.
    """
    fraction = (np.arange(count) + 0.5) / count
    decays = np.exp(-np.outer(fraction, DECAY_RATES if steep else ()))
    return np.column_stack([*(np.cos(np.pi * j * fraction) for j in range(half_waves + 1)), fraction, decays])


def make_waves(times: Array, frequencies: Array) -> Array:
    """Return cosine and sine of every frequency at every time: [times, 2F], the two of one frequency side by side."""
    angle = np.outer(times, frequencies)
    return np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(len(times), -1)


def fit_waves(rows: Array, frequencies: Array, trend: Array) -> WaveModel:
    """Fit amplitudes of these frequencies [F], and the trend [N, columns], to rows [N, D] by least squares."""
    # With X = QR the fit is QQᵀ rows, and the amplitudes solve R a = Qᵀ rows.
    basis, upper = np.linalg.qr(np.concatenate([trend, make_waves(make_times(len(rows)), frequencies)], axis=1))
    coordinates = basis.T @ rows
    amplitudes = np.linalg.lstsq(upper, coordinates, rcond=1e-8)[0][trend.shape[1] :]
    return WaveModel(frequencies, amplitudes, rows - basis @ coordinates, basis)


def refine_frequencies(rows: Array, frequencies: Array, trend: Array, steps: int) -> WaveModel:
    """Move all frequencies together to where the least is left of the rows, by damped Gauss-Newton.

    There are at most so many ``steps``; one in which the residual falls by less than 1e-9 of itself is the last.
    """
    model, damping, longest_step = fit_waves(rows, frequencies, trend), 1e-3, np.pi / 2 / len(rows)
    for _ in range(steps):
        (normal, gradient), left = model.linearise(), float((model.residual**2).sum())
        better = None
        while better is None and damping < 1e2:
            damped = normal + np.diag(damping * np.diag(normal) + 1e-300)
            step = np.linalg.lstsq(damped, gradient, rcond=None)[0]
            trial = model.frequencies + np.clip(step, -longest_step, longest_step)
            if trial.min() > 0 and trial.max() < np.pi:
                candidate = fit_waves(rows, trial, trend)
                better = candidate if (candidate.residual**2).sum() < left else None
            damping *= 10
        if better is None:
            break
        model, damping = better, max(damping / 100, 1e-6)
        if 1 - (better.residual**2).sum() / left < 1e-9:
            break
    return model


def find_peak(residual: Array, excluded: Array) -> tuple[float, float]:
    """Find the highest peak of the periodogram of rows [N, D], summed over the channels.

    It is looked for nowhere within ``LEAST_SEPARATION`` of the ``excluded`` frequencies. Returns its frequency, and its
    height over the median of the periodogram; (0, 0) where nothing is left.
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


def _compute_periodogram(rows: Array, padding: int) -> tuple[Array, Array]:
    """Return a grid of turns per row and the power there, on rows that are ``padding`` times as many or more."""
    length = 1 << int(np.ceil(np.log2(padding * len(rows))))
    power = (np.abs(np.fft.rfft(rows, length, axis=0)) ** 2).sum(1)
    return np.arange(len(power)) / length, power


def measure_agreement(rows: Array, frequencies: Array, *, steep: bool = False) -> Array:
    """Measure how well the amplitudes of each line agree between the first and the last three quarters of the rows.

    The agreement [F] is 2 Re⟨c₁, c₂⟩ / (|c₁|² + |c₂|²) over the channels, where c₁ and c₂ are the complex amplitudes
    fitted to the two ends with all lines together: 1 if they are equal, 0 if they are unrelated.
    """
    count, times = len(rows), make_times(len(rows))
    length = round(END_PART * count)
    decays = make_trend(count, steep=steep)[:, 4:]
    amplitudes = []
    for end in (slice(0, length), slice(count - length, count)):
        trend = np.concatenate([make_trend(length, 1), decays[end]], axis=1)
        basis = np.concatenate([trend, make_waves(times[end], frequencies)], axis=1)
        solution = np.linalg.lstsq(basis, rows[end], rcond=1e-6)[0][trend.shape[1] :]
        amplitudes.append(solution.reshape(len(frequencies), -1))
    # 2 Re⟨c₁, c₂⟩ / (|c₁|² + |c₂|²): 1 only if size and phase are the same in every channel.
    first, last = amplitudes
    return 2 * (first * last).sum(1) / np.maximum((first**2 + last**2).sum(1), 1e-300)


def measure_surrogates(noise: Array, *, steep: bool = False) -> Iterator[Array]:
    """Yield, for tables with the spectrum of ``noise`` [N, C] and random phases, how well each one's best lines agree.

    The phases are the same at every call and for no two components; the peaks are those of the grid, not refined.
    Source: Theiler et al. 1992.
    """
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
            peak = float(turns_per_row[int(power.argmax())])
            strongest.append(2 * np.pi * peak)
            power[np.abs(turns_per_row - peak) < 1 / len(rows)] = 0
        yield measure_agreement(rows, np.array(strongest), steep=steep)
