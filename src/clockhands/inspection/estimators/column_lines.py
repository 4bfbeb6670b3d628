"""Pairs of columns of a table that are one spectral line each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clockhands.inspection.estimators.surrogates import FEWEST_TURNS
from clockhands.inspection.estimators.wave_fit import Array, agreements, find_peak, refine, times_of, waves

AGREEMENT = 0.85
"""The least agreement of a line; of noise in many channels two thirds are expected, and at most 0.8 were seen."""
SMALLEST_SHARE = 1e-4
"""Lines with less of the table's variance are left aside: what leaks from a trend can be so large."""


@dataclass(frozen=True)
class Line:
    """One frequency, in radians per row: its two vectors, and how well they hold.

    ``plane_2D`` are the amplitudes of cosine and sine in each of the D channels, for rows counted from the middle;
    ``share`` is the share of the table's variance, ``agreement`` of its two ends (1: the same line in both),
    ``roundness`` the short axis of its orbit over the long one (1: a circle, 0: it swings on a straight line),
    ``error`` the standard error of the frequency, ``columns`` the channels, two or more, that are this line alone.
    ``parts`` are the lines that make up one whose speed or size varies: ``frequency`` is then its mean speed.
    """

    frequency: float
    plane_2D: Array
    share: float
    agreement: float
    roundness: float
    error: float = 0.0
    columns: tuple[int, ...] | None = None
    parts: tuple[Line, ...] = ()

    @property
    def amplitude_D(self) -> NDArray[np.complex128]:
        """The complex amplitude in every channel."""
        return self.plane_2D[0] - 1j * self.plane_2D[1]

    def waves(self, count: int) -> Array:
        """What it adds to each of ``count`` rows."""
        if self.parts:
            return np.asarray(sum(part.waves(count) for part in self.parts), dtype=np.float64)
        return np.asarray(waves(times_of(count), np.array([self.frequency])) @ self.plane_2D, dtype=np.float64)

    @property
    def period(self) -> float:
        """Rows in one turn."""
        return 2 * np.pi / self.frequency


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
        frequency, _ = find_peak(own, np.zeros(0))
        wave = waves(times_of(len(rows)), np.array([frequency]))
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
    """Merge lines that turn at one speed into one, which agrees and is round as the worst of them."""
    found: list[Line] = []
    for line in sorted(lines, key=lambda line: -line.frequency):
        if found and found[-1].frequency - line.frequency < 1e-3 * line.frequency:
            both = found[-1]
            plane = both.plane_2D + line.plane_2D
            found[-1] = replace(
                both,
                plane_2D=plane,
                share=both.share + line.share,
                agreement=min(both.agreement, line.agreement),
                roundness=min(both.roundness, line.roundness),
                columns=tuple(sorted((*(both.columns or ()), *(line.columns or ())))),
            )
        else:
            found.append(line)
    return found
