"""Sinusoids of several frequencies fitted together to the rows of a table, and how well each agrees with itself.

The amplitudes are solved for at every step and the frequencies moved by Gauss-Newton: variable projection, after
Golub & Pereyra 1973. Rows are counted from the middle of the table, and a frequency is in radians per row.
"""

from __future__ import annotations

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

    def compute_normal_matrix(self) -> Array:
        """Return the Gauss-Newton normal matrix [F, F] of the frequencies, the amplitudes solved for."""
        count = len(self.frequencies)
        slopes = _differentiate_waves(make_times(len(self.residual)), self.frequencies)
        slopes -= self.basis @ (self.basis.T @ slopes)
        products = (slopes.T @ slopes) * (self.amplitudes @ self.amplitudes.T)
        return products.reshape(count, 2, count, 2).sum((1, 3))

    def compute_gradient(self) -> Array:
        """Return the right side [F] of the normal equations: the residual along the derivative of each line."""
        slopes = _differentiate_waves(make_times(len(self.residual)), self.frequencies)
        return ((slopes.T @ self.residual) * self.amplitudes).reshape(len(self.frequencies), -1).sum(1)

    def compute_standard_errors(self) -> Array:
        """Return the standard error [F] of each frequency, in radians per row; it holds for a white residual."""
        degrees = self.residual.shape[1] * max(len(self.residual) - self.basis.shape[1], 1)
        variance = float((self.residual**2).sum()) / degrees
        inverse = np.linalg.pinv(self.compute_normal_matrix(), hermitian=True)
        return np.asarray(np.sqrt(np.maximum(np.diag(inverse), 0) * variance), dtype=np.float64)


def make_times(count: int) -> Array:
    """Return the numbers of ``count`` rows, counted from the middle of the table: [count]."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def make_trend(count: int, half_waves: int = 2, *, steep: bool = False) -> Array:
    """Return the columns of what a table may hold besides lines, a trend: [count, columns].

    They are a constant, a straight line and cosines of 1 to ``half_waves`` half waves within the table. ``steep`` adds
    the decays of ``DECAY_RATES``, whose sums come near to any trend that flattens along the table, such as a logarithm.
    Half waves alone leave much of such a trend, which would look like slow lines.
    """
    fraction = (np.arange(count) + 0.5) / count
    smooth = np.stack([*(np.cos(np.pi * j * fraction) for j in range(half_waves + 1)), fraction], axis=1)
    return np.concatenate([smooth, _make_decays(count)], axis=1) if steep else smooth


def _make_decays(count: int) -> Array:
    """Return exp(−r · row / rows) for each of ``DECAY_RATES``: [count, rates]."""
    return np.asarray(np.exp(-np.outer((np.arange(count) + 0.5) / count, DECAY_RATES)))


def make_waves(times: Array, frequencies: Array) -> Array:
    """Return cosine and sine of every frequency at every time: [times, 2F], the two of one frequency side by side."""
    angle = np.outer(times, frequencies)
    return np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(len(times), -1)


def _differentiate_waves(times: Array, frequencies: Array) -> Array:
    """Return the derivative of ``make_waves`` by the frequency of each column: [times, 2F]."""
    angle = np.outer(times, frequencies)
    slopes = np.stack([-np.sin(angle), np.cos(angle)], axis=2) * times[:, None, None]
    return slopes.reshape(len(times), -1)


def fit_waves(rows: Array, frequencies: Array, trend: Array) -> WaveModel:
    """Fit amplitudes of these frequencies [F], and the trend [N, columns], to rows [N, D] by least squares."""
    basis, upper = np.linalg.qr(np.concatenate([trend, make_waves(make_times(len(rows)), frequencies)], axis=1))
    coordinates = basis.T @ rows
    amplitudes = np.linalg.lstsq(upper, coordinates, rcond=1e-8)[0][trend.shape[1] :]
    return WaveModel(frequencies, amplitudes, rows - basis @ coordinates, basis)


def refine_frequencies(rows: Array, frequencies: Array, trend: Array, steps: int) -> WaveModel:
    """Move all frequencies together to where the least is left of the rows, by damped Gauss-Newton.

    Args:
        rows: the table, [N, D].
        frequencies: where to begin, in radians per row, [F].
        trend: what is fitted beside the lines, [N, columns].
        steps: the largest number of steps; one in which the residual falls by less than 1e-9 of itself is the last.
    """
    model, damping, longest_step = fit_waves(rows, frequencies, trend), 1e-3, np.pi / 2 / len(rows)
    for _ in range(steps):
        normal, gradient = model.compute_normal_matrix(), model.compute_gradient()
        better = None
        while better is None and damping < 1e2:
            damped = normal + np.diag(damping * np.diag(normal) + 1e-300)
            step = np.linalg.lstsq(damped, gradient, rcond=None)[0]
            trial = model.frequencies + np.clip(step, -longest_step, longest_step)
            if trial.min() > 0 and trial.max() < np.pi:
                candidate = fit_waves(rows, trial, trend)
                better = candidate if (candidate.residual**2).sum() < (model.residual**2).sum() else None
            damping *= 10
        if better is None:
            break
        gain = 1 - (better.residual**2).sum() / (model.residual**2).sum()
        model, damping = better, max(damping / 100, 1e-6)
        if gain < 1e-9:
            break
    return model


def find_peak(residual: Array, excluded: Array) -> tuple[float, float]:
    """Find the highest peak of the periodogram, summed over the channels.

    Args:
        residual: rows [N, D] in which to look.
        excluded: frequencies, in radians per row, within ``LEAST_SEPARATION`` of which no peak is looked for.

    Returns:
        The frequency in radians per row, and the height of the peak over the median of the periodogram; (0, 0) where
        nothing is left.
    """
    count = len(residual)
    length = 1 << int(np.ceil(np.log2(8 * count)))  # zeros are appended, so that the peak lies close to a grid point
    power = (np.abs(np.fft.rfft(residual, length, axis=0)) ** 2).sum(1)
    turns_per_row = np.arange(len(power)) / length
    free = (turns_per_row >= 1 / count) & (turns_per_row <= 0.5 - 0.5 / count)
    for center in excluded / (2 * np.pi):
        free &= np.abs(turns_per_row - center) > LEAST_SEPARATION / count
    if not free.any() or not power[free].any():
        return 0.0, 0.0
    peak = int(np.where(free, power, -1).argmax())
    return 2 * np.pi * float(turns_per_row[peak]), float(power[peak] / max(np.median(power[free]), 1e-300))


def measure_agreement(rows: Array, frequencies: Array, *, steep: bool = False) -> Array:
    """Measure how well the amplitudes of each line agree between the first and the last three quarters of the rows.

    The agreement is 2 Re⟨c₁, c₂⟩ / (|c₁|² + |c₂|²) over the channels, where c₁ and c₂ are the complex amplitudes
    fitted to the two ends with all lines together: 1 if they are equal, 0 if they are unrelated.

    Args:
        rows: the table, [N, D].
        frequencies: of the lines, in radians per row, [F].
        steep: whether the trend holds decays, as in ``make_trend``.

    Returns:
        One agreement for each line, [F], at most 1.
    """
    count, times = len(rows), make_times(len(rows))
    length = round(END_PART * count)
    amplitudes = []
    for end in (slice(0, length), slice(count - length, count)):
        trend = make_trend(length, 1)
        if steep:
            trend = np.concatenate([trend, _make_decays(count)[end]], axis=1)
        basis = np.concatenate([trend, make_waves(times[end], frequencies)], axis=1)
        solution = np.linalg.lstsq(basis, rows[end], rcond=1e-6)[0][trend.shape[1] :]
        amplitudes.append(solution.reshape(len(frequencies), -1))
    first, last = amplitudes
    return 2 * (first * last).sum(1) / np.maximum((first**2 + last**2).sum(1), 1e-300)
