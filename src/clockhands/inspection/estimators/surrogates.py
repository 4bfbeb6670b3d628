"""Surrogates: noise as smooth as a table and mixed over its channels as it is, to compare spectral lines with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from scipy.signal import lfilter

from clockhands.inspection.estimators.autoregression import fit_autoregression
from clockhands.inspection.estimators.wave_fit import Array, make_trend, measure_agreement

LEAST_TURNS = 1.98
"""A line must turn twice within the table, less the accuracy of 1 % that is asked of its period."""
SURROGATES = 60
"""Surrogates of each of the two kinds. A line must agree better than the best line in each of them."""
PATIENCE = 8
"""Lines that are looked for in each surrogate, and lines without agreement after which a search in the table ends."""
MOST_COMPONENTS = 128
"""Principal components of a table that are kept."""


def project_on_components(rows: Array) -> tuple[Array, Array]:
    """Return the coordinates [N, C] of rows [N, D] in their C leading principal components, and these: [C, D].

    Kept are those whose singular value is above 1e-9 of the largest, at most ``MOST_COMPONENTS``.
    """
    u, s, vt = np.linalg.svd(rows, full_matrices=False)
    count = max(1, min(MOST_COMPONENTS, int((s > 1e-9 * s[0]).sum())))
    return u[:, :count] * s[:count], vt[:count]


def measure_surrogates(noise: Array, rng: np.random.Generator, *, steep: bool = False) -> Iterator[Array]:
    """Measure how well lines agree in 2 × ``SURROGATES`` tables of noise.

    The tables are drawn to be as smooth as ``noise``, and mixed over the channels as it is.

    Args:
        noise: what the lines of a table leave of it, [N, D].
        rng: draws the surrogates.
        steep: whether the trend holds decays, as in ``make_trend``.

    Yields:
        For each surrogate, the agreement (``measure_agreement``) of each of its strongest lines.
    """
    rows, _ = project_on_components(noise)
    trend_basis = np.linalg.qr(make_trend(len(rows), steep=steep))[0]
    for draws in (_draw_phases(rows, rng), _draw_autoregression(rows, rng)):
        for drawn in islice(draws, SURROGATES):
            yield _measure_strongest(drawn, trend_basis, steep)


def _draw_phases(rows: Array, rng: np.random.Generator) -> Iterator[Array]:
    """Keep the spectrum of every component and draw its phases at random (Theiler et al. 1992), again and again."""
    spectrum = np.fft.rfft(rows, axis=0)
    while True:
        phases = np.exp(2j * np.pi * rng.random(spectrum.shape))
        yield np.fft.irfft(spectrum * phases, len(rows), axis=0)


def _draw_autoregression(rows: Array, rng: np.random.Generator, order: int = 8) -> Iterator[Array]:
    """Draw Gaussian noise with the components' variances and pass it through the autoregression fitted to them all.

    Again and again.
    """
    burn_in, coefficients, deviations = len(rows), fit_autoregression(rows, order), rows.std(0)
    while True:
        noise = rng.standard_normal((burn_in + len(rows), rows.shape[1])) * deviations
        yield lfilter([1.0], coefficients, noise, axis=0)[burn_in:]


def _measure_strongest(rows: Array, trend_basis: Array, steep: bool, count: int = PATIENCE) -> Array:
    """Return the agreements of the highest peaks of a periodogram.

    These are at most ``PATIENCE`` peaks of the grid, not refined; in a table up to 48 lines are tried, refined. That
    this lets no more lines pass than it should is measured, not derived: benchmarks/hands.py counts them in smooth
    tables that have none.
    """
    rows = rows - trend_basis @ (trend_basis.T @ rows)
    length = 1 << int(np.ceil(np.log2(2 * len(rows))))
    power = (np.abs(np.fft.rfft(rows, length, axis=0)) ** 2).sum(1)
    turns_per_row = np.arange(len(power)) / length
    power[(turns_per_row < LEAST_TURNS / len(rows)) | (turns_per_row > 0.5 - 0.5 / len(rows))] = 0
    strongest: list[float] = []
    for _ in range(min(count, max(1, len(rows) // 16))):
        peak = float(turns_per_row[int(power.argmax())])
        strongest.append(2 * np.pi * peak)
        power[np.abs(turns_per_row - peak) < 1 / len(rows)] = 0
    return measure_agreement(rows, np.array(strongest), steep=steep)
