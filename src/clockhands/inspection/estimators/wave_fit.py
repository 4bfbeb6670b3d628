"""Waves of several frequencies fitted to a table together, and how well they agree with themselves along it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

WINDOW = 0.75
"""The part of the rows that amplitudes are fitted to, once from the first row and once to the last."""
DECAYS = (4.0, 12.0, 36.0)
"""By how many factors of e the decays of a steep trend fall within the table."""
CLOSEST = 0.5
"""Turns within the table by which lines must differ to be fitted together."""


@dataclass
class WaveModel:
    """Lines fitted together: their frequencies, amplitudes (cosine and sine in turns) and what is left."""

    frequencies: Array
    amplitudes: Array
    residual: Array
    basis: Array

    def normal(self) -> Array:
        """The matrix of the normal equations of the frequencies, amplitudes solved for."""
        count = len(self.frequencies)
        slopes = _slopes(times_of(len(self.residual)), self.frequencies)
        slopes -= self.basis @ (self.basis.T @ slopes)
        products = (slopes.T @ slopes) * (self.amplitudes @ self.amplitudes.T)
        return products.reshape(count, 2, count, 2).sum((1, 3))

    def gradient(self) -> Array:
        """Their right side."""
        slopes = _slopes(times_of(len(self.residual)), self.frequencies)
        return ((slopes.T @ self.residual) * self.amplitudes).reshape(len(self.frequencies), -1).sum(1)

    def errors(self) -> Array:
        """Standard errors of the frequencies, for residuals that are white."""
        freedom = self.residual.shape[1] * max(len(self.residual) - self.basis.shape[1], 1)
        variance = float((self.residual**2).sum()) / freedom
        inverse = np.linalg.pinv(self.normal(), hermitian=True)
        return np.asarray(np.sqrt(np.maximum(np.diag(inverse), 0) * variance), dtype=np.float64)


def times_of(count: int) -> Array:
    """Return the row numbers, counted from the middle of the table."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def slow_basis(count: int, waves: int = 2, *, steep: bool = False) -> Array:
    """Return what a table may hold besides lines: a constant, a straight line and half waves.

    ``steep`` adds decays from the first row on. Sums of these come near to any trend that flattens along the table,
    such as a logarithm, of which half waves leave much beside slow lines.
    """
    place = (np.arange(count) + 0.5) / count
    smooth = np.stack([*(np.cos(np.pi * j * place) for j in range(waves + 1)), place], axis=1)
    return np.concatenate([smooth, _decays(count)], axis=1) if steep else smooth


def _decays(count: int) -> Array:
    return np.asarray(np.exp(-np.outer((np.arange(count) + 0.5) / count, DECAYS)))


def waves(times: Array, frequencies: Array) -> Array:
    """Cosine and sine of every frequency, in turns."""
    angle = np.outer(times, frequencies)
    return np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(len(times), -1)


def _slopes(times: Array, frequencies: Array) -> Array:
    """The derivative of ``waves`` by its frequencies."""
    angle = np.outer(times, frequencies)
    slopes = np.stack([-np.sin(angle), np.cos(angle)], axis=2) * times[:, None, None]
    return slopes.reshape(len(times), -1)


def fit_waves(rows: Array, frequencies: Array, slow: Array) -> WaveModel:
    basis, upper = np.linalg.qr(np.concatenate([slow, waves(times_of(len(rows)), frequencies)], axis=1))
    inner = basis.T @ rows
    amplitudes = np.linalg.lstsq(upper, inner, rcond=1e-8)[0][slow.shape[1] :]
    return WaveModel(frequencies, amplitudes, rows - basis @ inner, basis)


def refine(rows: Array, frequencies: Array, slow: Array, steps: int) -> WaveModel:
    """Move all frequencies together to where they leave least (Gauss-Newton, damped)."""
    model, damping, longest = fit_waves(rows, frequencies, slow), 1e-3, np.pi / 2 / len(rows)
    for _ in range(steps):
        normal, gradient = model.normal(), model.gradient()
        better = None
        while better is None and damping < 1e2:
            damped = normal + np.diag(damping * np.diag(normal) + 1e-300)
            step = np.linalg.lstsq(damped, gradient, rcond=None)[0]
            trial = model.frequencies + np.clip(step, -longest, longest)
            if trial.min() > 0 and trial.max() < np.pi:
                fitted = fit_waves(rows, trial, slow)
                better = fitted if (fitted.residual**2).sum() < (model.residual**2).sum() else None
            damping *= 10
        if better is None:
            break
        gained = 1 - (better.residual**2).sum() / (model.residual**2).sum()
        model, damping = better, max(damping / 100, 1e-6)
        if gained < 1e-9:
            break
    return model


def find_peak(residual: Array, taken: Array) -> tuple[float, float]:
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


def agreements(rows: Array, frequencies: Array, *, steep: bool = False) -> Array:
    """Return how well the complex amplitudes of each line agree in the first and the last three quarters of the rows.

    2 Re⟨c₁, c₂⟩ / (|c₁|² + |c₂|²) over the channels, c₁ and c₂ fitted with all lines together: 1 if equal, 0 if
    unrelated. ``steep``: as in ``slow_basis``.
    """
    count, times = len(rows), times_of(len(rows))
    long = round(WINDOW * count)
    found = []
    for part in (slice(0, long), slice(count - long, count)):
        slow = slow_basis(long, 1)
        if steep:
            slow = np.concatenate([slow, _decays(count)[part]], axis=1)
        basis = np.concatenate([slow, waves(times[part], frequencies)], axis=1)
        fitted = np.linalg.lstsq(basis, rows[part], rcond=1e-6)[0][slow.shape[1] :]
        found.append(fitted.reshape(len(frequencies), -1))
    first, last = found
    return 2 * (first * last).sum(1) / np.maximum((first**2 + last**2).sum(1), 1e-300)
