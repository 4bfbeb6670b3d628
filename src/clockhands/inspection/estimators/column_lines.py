"""Spectral lines, and the pairs of columns of a table that hold one line each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clockhands.inspection.estimators.column_pairs import list_pairings
from clockhands.inspection.estimators.surrogates import LEAST_TURNS
from clockhands.inspection.estimators.wave_fit import (
    Array,
    find_peak,
    make_times,
    make_waves,
    measure_agreement,
    refine_frequencies,
)

LEAST_AGREEMENT = 0.85
"""A line counts if the two ends of the table agree on it by more than this (``measure_agreement``). On noise in many
channels they agree by two thirds on average, and by 0.8 at most."""
LEAST_SHARE = 1e-4
"""The share of the table's variance below which a line is not counted: it may be a remainder of a large trend."""
LEAST_EXPLAINED = 0.6
"""The part of its sum of squares that the highest peak of a pair of columns must explain: else no line is fitted."""
MOST_RESIDUAL = 0.05
"""The part of its sum of squares that a pair of columns may keep beside its line."""
LEAST_PAIR_ROUNDNESS = 0.8
"""The least roundness (``SpectralLine.roundness``) of the orbit in a pair of columns that holds one line."""


@dataclass(frozen=True)
class SpectralLine:
    """One frequency of a table: a pair of vectors across its channels, and how well they hold along the rows.

    Attributes:
        frequency: in radians per row; of a line with ``parts`` their mean speed.
        plane_2D: the amplitudes of cosine and sine in each of the D channels, for rows counted from the middle.
        share: of the table's variance.
        agreement: between the first and the last three quarters of the rows (``measure_agreement``).
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
        waves = make_waves(make_times(count), np.array([self.frequency]))
        return np.asarray(waves @ self.plane_2D, dtype=np.float64)

    def compute_path(self, count: int) -> NDArray[np.complex128]:
        """Return where the hand stands at each of ``count`` rows: its angle and its size, as complex numbers [count].

        The complex amplitudes of its parts are projected on that of the strongest, turned and summed: a line without
        parts goes round a circle in equal steps. In sums of the rows an elliptic orbit would look like a speed that
        varies.
        """
        parts = self.parts or (self,)
        seen_from = max(parts, key=lambda part: part.share).amplitude_D.conj()
        waves = np.exp(1j * np.outer(make_times(count), [part.frequency for part in parts]))
        return np.asarray(waves @ [part.amplitude_D @ seen_from for part in parts])


def take_column_lines(rows: Array, variance: float) -> tuple[list[SpectralLine], Array]:
    """Find the pairs of columns that hold one line each, and subtract these lines from the rows.

    Of the two ways in which ``list_pairings`` pairs the columns, the one with more such pairs is taken. So the lines of
    a table of sinusoids are found one by one, however close their frequencies are.

    Args:
        rows: the table, [N, D], of mean zero.
        variance: that of the table, summed over the channels.

    Returns:
        The lines, and the rows [N, D] without them.
    """
    lines = max(([*_fit_pairs(rows, pairs, variance)] for pairs in list_pairings(rows.shape[1])), key=len)
    rest = rows.copy()
    for line in lines:
        rest -= line.compute_rows(len(rows))
    return _merge_equal_frequencies(lines), rest


def _fit_pairs(rows: Array, pairs: list[tuple[int, int]], variance: float) -> Iterator[SpectralLine]:
    """Yield the line of each pair of columns that holds one line and little else."""
    least_frequency = LEAST_TURNS * 2 * np.pi / len(rows)
    for pair in pairs:
        columns = rows[:, pair]
        squares = float((columns**2).sum())
        if squares <= LEAST_SHARE * variance * len(rows):
            continue
        frequency, _ = find_peak(columns, np.zeros(0))
        waves = make_waves(make_times(len(rows)), np.array([frequency]))
        if ((waves.T @ columns) ** 2).sum() < LEAST_EXPLAINED * squares * len(rows) / 2:
            continue
        model = refine_frequencies(columns, np.array([frequency]), np.ones((len(rows), 1)), steps=8)
        axes = np.linalg.svd(model.amplitudes, compute_uv=False)
        agreement = float(measure_agreement(columns, model.frequencies)[0])
        is_circle = axes[1] > LEAST_PAIR_ROUNDNESS * axes[0]
        if (
            is_circle
            and float((model.residual**2).sum()) < MOST_RESIDUAL * squares
            and agreement > LEAST_AGREEMENT
            and model.frequencies[0] >= least_frequency
        ):
            plane_2D = np.zeros((2, rows.shape[1]))
            plane_2D[:, pair] = model.amplitudes
            yield SpectralLine(
                frequency=float(model.frequencies[0]),
                plane_2D=plane_2D,
                share=float((axes**2).sum() / 2 / variance),
                agreement=agreement,
                roundness=float(axes[1] / axes[0]),
                error=float(model.compute_standard_errors()[0]),
                columns=pair,
            )


def _merge_equal_frequencies(lines: list[SpectralLine]) -> list[SpectralLine]:
    """Merge lines of equal frequency (within 0.1 %) into one, whose agreement and roundness are the least of them."""
    merged: list[SpectralLine] = []
    for line in sorted(lines, key=lambda line: -line.frequency):
        if merged and merged[-1].frequency - line.frequency < 1e-3 * line.frequency:
            last = merged[-1]
            merged[-1] = replace(
                last,
                plane_2D=last.plane_2D + line.plane_2D,
                share=last.share + line.share,
                agreement=min(last.agreement, line.agreement),
                roundness=min(last.roundness, line.roundness),
                columns=tuple(sorted((*(last.columns or ()), *(line.columns or ())))),
            )
        else:
            merged.append(line)
    return merged
