"""Search for spectral lines across the columns of a whitened table, and give them back in the table's own channels."""

from __future__ import annotations

import numpy as np

from clockhands.inspection.estimators.column_lines import LEAST_AGREEMENT, SpectralLine
from clockhands.inspection.estimators.surrogates import PATIENCE
from clockhands.inspection.estimators.wave_fit import (
    END_PART,
    LEAST_SEPARATION,
    Array,
    WaveModel,
    find_peak,
    fit_waves,
    make_trend,
    measure_agreement,
    refine_frequencies,
)

MOST_LINES = 48
"""Lines that are fitted to a table at most."""


def search_lines(rows: Array, *, steep: bool) -> WaveModel:
    """Add lines to a model one by one, until ``PATIENCE`` of them did not agree with themselves.

    A line that does not agree counts half if its peak is three times the median of the periodogram or more, so that the
    search goes on longer where something stands out of the noise. So does one that cannot be fitted beside those before
    it.

    Args:
        rows: the whitened table, [N, C].
        steep: whether the trend holds decays, as in ``make_trend``.
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
        if _are_inseparable(extended.frequencies, len(rows)):
            rejected = np.append(rejected, frequency)
            failures += 0.5
            continue
        model = extended
        if measure_agreement(rows, model.frequencies, steep=steep)[-1] < LEAST_AGREEMENT:
            failures += 1 if height < 3 else 0.5
    if not len(model.frequencies):
        return model
    final = refine_frequencies(rows, model.frequencies, trend, steps=15)
    return model if _are_inseparable(final.frequencies, len(rows)) else final


def _are_inseparable(frequencies: Array, num_rows: int) -> bool:
    """Tell whether two frequencies are so close that their amplitudes cannot be told apart."""
    return bool((np.diff(np.sort(frequencies)) * num_rows < LEAST_SEPARATION * 2 * np.pi).any())


def undo_whitening(
    model: WaveModel, whitened: Array, components: Array, coefficient: float, variance: float, *, steep: bool
) -> list[SpectralLine]:
    """Return the lines of the table itself from those fitted to its whitened rows.

    Args:
        model: the fit of the lines to ``whitened``.
        whitened: the rows after the filter x_t − φ x_(t−1), in coordinates of their components, [N, C].
        components: the principal components of these coordinates, [C, D].
        coefficient: φ.
        variance: that of the whole table, summed over its channels, of which each line gets its share.
        steep: whether the trend holds decays, as in ``make_trend``.
    """
    agreement = measure_agreement(whitened, model.frequencies, steep=steep)
    errors = model.compute_standard_errors()
    lines = []
    for index, frequency in enumerate(model.frequencies):
        cosine, sine = model.amplitudes[2 * index : 2 * index + 2]
        # A wave of amplitude c leaves the filter x_t − φ x_(t−1) with c (1 − φ e^(−iω)), half a row later.
        amplitude = (cosine - 1j * sine) / (1 - coefficient * np.exp(-1j * frequency)) * np.exp(-0.5j * frequency)
        plane_2D = np.stack([amplitude.real, -amplitude.imag]) @ components
        axes = np.linalg.svd(plane_2D, compute_uv=False)
        lines.append(
            SpectralLine(
                frequency=float(frequency),
                plane_2D=plane_2D,
                share=float((axes**2).sum() / 2 / variance),
                agreement=float(agreement[index]),
                roundness=float(axes[-1] / axes[0]) if len(axes) > 1 else 0.0,
                error=float(errors[index]),
            )
        )
    return lines
