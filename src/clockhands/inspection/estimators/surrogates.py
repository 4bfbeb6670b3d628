"""Noise that is as smooth as a table, and mixed over channels as it is: what spectral lines are compared with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clockhands.inspection.estimators.autoregression import burg
from clockhands.inspection.estimators.wave_fit import Array, agreements, slow_basis

FEWEST_TURNS = 1.98
"""A line must turn twice within the table (less the accuracy that is asked of its period)."""
SURROGATES = 60
"""Of each kind. A line must agree better than the best line in each of them."""
PATIENCE = 8
"""Lines looked for in each surrogate, and lines that may be tried in vain in the table itself."""
MOST_CHANNELS = 128


def leading_components(rows_nD: Array) -> tuple[Array, Array]:
    """Coordinates in the leading principal components, and these."""
    u, s, vt = np.linalg.svd(rows_nD, full_matrices=False)
    kept = max(1, min(MOST_CHANNELS, int((s > 1e-9 * s[0]).sum())))
    return u[:, :kept] * s[:kept], vt[:kept]


def draw_surrogates(noise: Array, rng: np.random.Generator, *, steep: bool = False) -> Iterator[Array]:
    """Draw noise as smooth as this and mixed over channels as this; yield the agreements of its strongest lines."""
    rows, _ = leading_components(noise)
    for make in (_random_phases, _autoregression):
        for _ in range(SURROGATES):
            yield _strongest(make(rows, rng), steep)


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


def _strongest(rows: Array, steep: bool, count: int = PATIENCE) -> Array:
    """Return how well the highest peaks of a periodogram agree with themselves.

    These are at most ``PATIENCE`` peaks of the grid, not refined; of a table up to 48 lines are tried, refined. That
    this lets no more hands pass than it should is measured, not derived: benchmarks/hands.py counts them in smooth
    tables that have none.
    """
    slow = slow_basis(len(rows), steep=steep)
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
    return agreements(rows, np.array(taken), steep=steep)
