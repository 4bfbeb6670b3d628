"""Does the table hold clock hands? What rotates at constant speed all along the position table."""

from __future__ import annotations

import math

import numpy as np
import torch

from clockhands.findings import Finding, Reference, Table, join_words
from clockhands.inspection.estimators.column_lines import LEAST_AGREEMENT, SpectralLine
from clockhands.inspection.estimators.exact_hands import ExactHands, read_exact_hands
from clockhands.inspection.estimators.spectral_lines import LEAST_ROUNDNESS, STEEP_SHARE, TableLines, find_lines
from clockhands.inspection.estimators.surrogates import SURROGATES
from clockhands.inspection.estimators.wave_fit import Array, make_trend
from clockhands.inspection.measures.encoding_view import make_encoding_view
from clockhands.inspection.measures.hands_figure import draw_hands
from clockhands.inspection.measures.hands_verdict import describe_exact_hands, describe_lines, find_period_range
from clockhands.inspection.measures.measure import INPUT_HEADING, Measure
from clockhands.inspection.measures.position_rows import PositionRows, read_rows
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

MOST_ROWS = 1024
"""Rows of the table that are read at most."""
COLUMNS = (
    "tokens per turn",
    "low",
    "high",
    "share of the variance",
    "agreement",
    "roundness",
    "what it does",
    "read from",
    "fastest period",
    "slowest period",
)
"""Columns of the table of lines that were estimated. Periods are in tokens per turn; ``low`` and ``high`` are the ends
of the 95 % interval of the period."""


class TableHands(Measure):
    """How many hands the position table holds, and how fast they turn."""

    name = "table.hands"
    question = "Does the table hold clock hands?"
    references = ("smooth surrogates",)
    method = (
        "A hand is a frequency whose cosine and sine span a plane of the table, in which the rows rotate from the "
        f"first to the last; row 0 is left out, and at most {MOST_ROWS} rows are read (511 of a model of this "
        "project). Pairs of columns that are one "
        "such circle each are read first. In the rest the highest peak of the periodogram, summed over the channels, "
        "is added to a least-squares model, all frequencies are refined together, and the same is done with what is "
        "left. A line counts if its amplitudes in all channels, fitted to the first three quarters of the rows, agree "
        "with those fitted to the last: agreement is 2 Re⟨c₁, c₂⟩ / (|c₁|² + |c₂|²), 1 for a line without noise, about "
        "two thirds for noise, because half of the rows are the same. It must be above "
        f"{LEAST_AGREEMENT}, and above that of every line in surrogates of what the lines leave: {SURROGATES} with the "
        f"same spectrum and random phases, {SURROGATES} of an autoregression fitted to it. Reference: the number of "
        f"lines above {LEAST_AGREEMENT} in a surrogate, on average; rows in random order are no reference, for any "
        "smooth table beats them. Neighbouring lines in one plane are one hand whose speed or size varies. A hand must "
        "make two turns within the rows that are read: slower ones cannot be told from a trend. Where a trend holds "
        f"{STEEP_SHARE:.0%} of the variance or more, a hand across columns must make three. "
        "Mixed hands are told apart if one "
        "makes about two turns more than the other within the table; hands in columns of their own need no such "
        "distance. benchmarks/hands.py plants hands, and smooth tables without any. Intervals: 95 %, for white noise; "
        "where the speed varies, its range instead; the number of hands has none, since each hand was compared with "
        "the surrogates by itself."
    )
    source = "Vaswani et al. 2017, section 3.5; Yamamoto & Matsuzaki 2023; Theiler et al. 1992 (surrogates)"
    heading = INPUT_HEADING

    def run(self, reading: Reading) -> Finding:
        """Measure the table at the input; the value is the number of hands."""
        rows = read_rows(reading.subject, MOST_ROWS)
        if isinstance(rows, str):
            return self.skip(rows)
        exact = read_exact_hands(rows.added_ND)
        return self._report_exact(rows, exact) if exact.periods else self._estimate(rows)

    def _estimate(self, rows: PositionRows) -> Finding:
        """Find hands in a table of which not every pair of columns is one."""
        rows_ND = rows.centred_ND.numpy()
        lines = find_lines(rows_ND)
        slow_share = compute_slow_share(rows_ND, lines)
        hands = [(line.period, compute_orbit(rows_ND, lines, line)) for line in lines.rotating]
        return self.make_finding(
            describe_lines(lines, len(rows_ND), slow_share),
            float(len(lines.rotating)),
            references=(Reference("smooth surrogates", lines.by_chance),) if lines.surrogates else (),
            unit="hands",
            light="good" if lines.rotating else "info",
            table=Table.of(COLUMNS, [_make_row(line) for line in (*lines.rotating, *lines.oscillating)]),
            figure=draw_hands(hands),
            details={
                "agreement needed": lines.needed,
                "best agreement without a hand": lines.best_other,
                "surrogates": lines.surrogates,
                "slow share": slow_share,
                "view": make_encoding_view(rows.added_ND, hands, first=1),
            },
        )

    def _report_exact(self, rows: PositionRows, hands: ExactHands) -> Finding:
        """Report the hands of a table of which every pair of columns is one, or zero."""
        ordered = sorted(zip(hands.periods, hands.orbits, hands.pairs, strict=True), key=lambda hand: hand[0])
        orbits = [(period, orbit) for period, orbit, _ in ordered]
        return self.make_finding(
            describe_exact_hands([period for period, _, _ in ordered], hands.zero_pairs, len(rows.added_ND)),
            float(len(ordered)),
            unit="hands",
            light="good",
            table=Table.of(
                ("tokens per turn", "first column", "second column"), [(period, *pair) for period, _, pair in ordered]
            ),
            figure=draw_hands(orbits),
            details={"view": make_encoding_view(rows.added_ND, orbits, first=1)},
            method="Every pair of columns that is not zero keeps its distance from zero within 0.1 %, and its angle is "
            "a straight line (R² above 0.9999), from row 1 on: the speed is read from the columns as they are.",
            source="Vaswani et al. 2017, section 3.5",
        )


def _make_row(line: SpectralLine) -> tuple[float | str | None, ...]:
    """Return the row of one line in the table of the finding, with ``COLUMNS``."""
    low, high = (None, None) if line.parts else _compute_period_interval(line)
    fastest, slowest = find_period_range(line) if line.parts else (None, None)
    rotation = "turns, its speed or size varies" if line.parts else "turns"
    motion = "swings" if line.roundness < LEAST_ROUNDNESS else rotation
    origin = f"columns {join_words(map(str, line.columns))}" if line.columns else "a plane across columns"
    return (line.period, low, high, line.share, line.agreement, line.roundness, motion, origin, fastest, slowest)


def _compute_period_interval(line: SpectralLine) -> tuple[float, float | None]:
    """Return the 95 % interval of the period of one line; no upper end where the frequency's interval reaches 0."""
    fast, slow = (line.frequency + sign * 1.96 * line.error for sign in (1, -1))
    return 2 * math.pi / fast, 2 * math.pi / slow if slow > 0 else None


def compute_slow_share(rows_ND: Array, lines: TableLines) -> float:
    """Return the share of the variance that is slower than two turns within the table, the lines taken out.

    It is what a constant, a straight line and one to three half waves hold, beyond what white noise would have there.
    """
    rest = rows_ND - _add_lines(rows_ND, (*lines.rotating, *lines.oscillating))
    basis = np.linalg.qr(make_trend(len(rest), 3))[0]
    slow, total = float(((basis.T @ (rest - rest.mean(0))) ** 2).sum()), float((rest**2).sum())
    by_chance = total * (basis.shape[1] - 1) / (len(rest) - 1)
    return max(slow - by_chance, 0.0) / float((rows_ND**2).sum())


def _add_lines(rows_ND: Array, lines: tuple[SpectralLine, ...]) -> Array:
    """Return the sum of what these lines add to the rows: [N, D]."""
    return sum((line.compute_rows(len(rows_ND)) for line in lines), np.zeros_like(rows_ND))


def compute_orbit(rows_ND: Array, lines: TableLines, line: SpectralLine) -> Float[Tensor, "N two"]:
    """Return the rows of the table in the plane of one line, without the other lines and the trend."""
    others = tuple(other for other in (*lines.rotating, *lines.oscillating) if other is not line)
    rest = rows_ND - _add_lines(rows_ND, others)
    basis = np.linalg.qr(make_trend(len(rest), 3))[0]
    rest = rest - basis @ (basis.T @ (rest - _add_lines(rows_ND, (line,))))
    axes = np.linalg.svd(line.plane_2D, full_matrices=False)[2]
    return torch.from_numpy(rest @ axes.T)
