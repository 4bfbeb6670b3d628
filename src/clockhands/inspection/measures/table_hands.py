"""Clock hands: what turns at constant speed all along the position table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import join_words, mark, percent
from clockhands.inspection.estimators.column_lines import LEAST_AGREEMENT, SpectralLine
from clockhands.inspection.estimators.exact_hands import ExactHands, read_exact_hands
from clockhands.inspection.estimators.spectral_lines import LEAST_ROUNDNESS, TableLines, find_lines
from clockhands.inspection.estimators.surrogates import LEAST_ROTATIONS, SURROGATES
from clockhands.inspection.estimators.wave_fit import Array, make_trend
from clockhands.inspection.measures.measure import INPUT, Measure
from clockhands.inspection.measures.position_rows import PositionRows, read_rows
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

MOST_ROWS = 1024
MOST_DOTS = 64
MOST_NAMED = 12
"""Periods named in a verdict; the table has all."""


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


class TableHands(Measure):
    """How many hands the position table holds, and how fast they turn."""

    name = "table.hands"
    question = "Does the table hold clock hands?"
    references = ("smooth surrogates",)
    method = (
        "A hand is a frequency whose cosine and sine span a plane of the table, in which the rows turn from the first "
        f"to the last; row 0 is left out, and at most {MOST_ROWS} rows are read. Pairs of columns that are one such "
        "circle each are read first. In the rest the strongest peak of the periodogram, summed over the channels, is "
        "added to a least-squares model, all frequencies are refined together, and so on with what is left. A line "
        "counts if its amplitudes in all channels, fitted to the first three quarters of the rows, agree with those "
        "fitted to the last: agreement is 2 Re⟨c₁, c₂⟩ / (|c₁|² + |c₂|²), 1 for a line without noise, about two "
        f"thirds for noise, because half of the rows are the same. It must be above {LEAST_AGREEMENT}, and above that "
        f"of every line in surrogates of what the lines leave: {SURROGATES} with the same spectrum and random phases, "
        f"{SURROGATES} of an autoregression fitted to it. Reference: the number of lines above {LEAST_AGREEMENT} in a "
        "surrogate, on average; rows in random order are none here, for any smooth table beats them. Neighbouring "
        "lines in one plane are one hand whose speed or size varies. A hand must make two turns within the table: "
        "slower ones cannot be told from a trend. Mixed hands are told apart if one makes about two turns more than "
        "the other within the table; hands in columns of their own need no such distance. benchmarks/hands.py plants "
        "hands, and smooth tables without any. Intervals: 95 %, for white noise; where the speed varies, its "
        "range instead; the number of hands has none, for every hand beat the surrogates by itself."
    )
    source = "Vaswani et al. 2017, section 3.5; Yamamoto & Matsuzaki 2023; Theiler et al. 1992 (surrogates)"
    group = INPUT

    def run(self, reading: Reading) -> Finding:
        rows = read_rows(reading.subject, MOST_ROWS)
        if isinstance(rows, str):
            return self.skip(rows)
        exact = read_exact_hands(rows.raw_ND)
        return self._exact(rows, exact) if exact.periods else self._estimated(rows.centred_ND.numpy())

    def _estimated(self, rows_nD: Array) -> Finding:
        """Find hands in a table of which not every pair of columns is one."""
        found = find_lines(rows_nD)
        return self.finding(
            _verdict(rows_nD, found),
            float(len(found.rotating)),
            references=(Reference("smooth surrogates", found.by_chance),) if found.surrogates else (),
            unit="hands",
            light="good" if found.rotating else "info",
            table=Table.of(COLUMNS, [_row(line) for line in (*found.rotating, *found.oscillating)]),
            figure=_figure([(line.period, orbit(rows_nD, found, line)) for line in found.rotating]),
            details={
                "agreement needed": found.needed,
                "best agreement without a hand": found.best_other,
                "surrogates": found.surrogates,
                "slow share": slow_share(rows_nD, found),
            },
        )

    def _exact(self, rows: PositionRows, found: ExactHands) -> Finding:
        """Read the hands of a table of which every pair of columns is one."""
        ordered = sorted(zip(found.periods, found.orbits, found.pairs, strict=True), key=lambda hand: hand[0])
        return self.finding(
            _exact_verdict([period for period, _, _ in ordered], found.zero_pairs, len(rows.raw_ND)),
            float(len(ordered)),
            unit="hands",
            light="good",
            table=Table.of(
                ("tokens per turn", "first column", "second column"), [(period, *pair) for period, _, pair in ordered]
            ),
            figure=_figure([(period, points) for period, points, _ in ordered]),
            method="Every pair of columns that is not zero keeps its distance from zero within 0.1 %, and its angle is "
            "a straight line (R² above 0.9999), from row 1 on: the speed is read from the columns as they are.",
            source="Vaswani et al. 2017, section 3.5",
        )


def _row(line: SpectralLine) -> tuple[float | str | None, ...]:
    low, high = (None, None) if line.parts else _interval(line)
    fastest, slowest = _range(line) if line.parts else (None, None)
    does = (
        "swings" if line.roundness < LEAST_ROUNDNESS else "turns, its speed or size varies" if line.parts else "turns"
    )
    where = f"columns {join_words(map(str, line.columns))}" if line.columns else "a plane across columns"
    return (line.period, low, high, line.share, line.agreement, line.roundness, does, where, fastest, slowest)


def _interval(line: SpectralLine) -> tuple[float, float | None]:
    """Return the 95 % interval of the period of one line; no upper end where the frequency's interval reaches 0."""
    fast, slow = (line.frequency + sign * 1.96 * line.error for sign in (1, -1))
    return 2 * math.pi / fast, 2 * math.pi / slow if slow > 0 else None


def _verdict(rows_nD: Array, found: TableLines) -> str:
    slow = slow_share(rows_nD, found)
    told = [_turning(found), _varying(found), _swinging(found.oscillating)]
    if slow > 0.1:
        told.append(
            f"{percent(slow)} of the variance moves more slowly than one turn in {len(rows_nD) / 2:.0f} tokens; a "
            f"table of {len(rows_nD)} rows is too short to tell whether that turns."
        )
    return " ".join(sentence for sentence in told if sentence)


def _turning(found: TableLines) -> str:
    if not found.rotating:
        reached = f" (best agreement {found.best_other:.2f}; {found.needed:.2f} needed)" if found.best_other > 0 else ""
        return f"No hand of two turns or more was found in the table{reached}."
    number = f"{len(found.rotating)} hands turn" if len(found.rotating) > 1 else "One hand turns"
    lowest = min(line.agreement for line in found.rotating)
    beaten = f"; {found.surrogates} smooth surrogates reach {found.best_surrogate:.2f}" if found.surrogates else ""
    speed = "" if any(line.parts for line in found.rotating) else " at constant speed"
    return (
        f"{number}{speed}, once in {_periods(found.rotating)} tokens (the table's two ends agree by at least "
        f"{lowest:.2f}{beaten})."
    )


def _varying(found: TableLines) -> str:
    varying = [line for line in found.rotating if line.parts]
    if not varying:
        return ""
    ranges = join_words("{:.1f} to {:.1f}".format(*_range(line)) for line in varying)
    return f"{len(varying)} of them {'turns' if len(varying) == 1 else 'turn'} at a speed that varies: {ranges}."


def _range(line: SpectralLine) -> tuple[float, float]:
    """The shortest and the longest period of a hand whose speed varies."""
    periods = [line.period, *(part.period for part in line.parts)]
    return min(periods), max(periods)


def _swinging(lines: Sequence[SpectralLine]) -> str:
    if not lines:
        return ""
    return f"Something swings back and forth without turning, once in {_periods(lines)} tokens."


def _periods(lines: Sequence[SpectralLine]) -> str:
    periods = [f"{line.period:.1f}" for line in lines]
    if len(periods) <= MOST_NAMED:
        return join_words(periods)
    return f"{', '.join(periods[: MOST_NAMED - 1])} ... {periods[-1]}"


def slow_share(rows_nD: Array, found: TableLines) -> float:
    """The share of the variance that is slower than half a table, beyond what white noise would have there; hands are
    taken out."""
    left = rows_nD - _waves_of(rows_nD, (*found.rotating, *found.oscillating))
    basis = np.linalg.qr(make_trend(len(left), 3))[0]
    slow, total = float(((basis.T @ (left - left.mean(0))) ** 2).sum()), float((left**2).sum())
    by_chance = total * (basis.shape[1] - 1) / (len(left) - 1)
    return max(slow - by_chance, 0.0) / float((rows_nD**2).sum())


def _waves_of(rows_nD: Array, lines: Sequence[SpectralLine]) -> Array:
    return sum((line.compute_rows(len(rows_nD)) for line in lines), np.zeros_like(rows_nD))


def orbit(rows_nD: Array, found: TableLines, line: SpectralLine) -> Float[Tensor, "T two"]:
    """The table's rows in the plane of one line, less the other lines and what is slow."""
    others = [other for other in (*found.rotating, *found.oscillating) if other is not line]
    left = rows_nD - _waves_of(rows_nD, others)
    own = _waves_of(rows_nD, [line])
    basis = np.linalg.qr(make_trend(len(left), 3))[0]
    left = left - basis @ (basis.T @ (left - own))
    axes = np.linalg.svd(line.plane_2D, full_matrices=False)[2]
    return torch.from_numpy(left @ axes.T)


def _exact_verdict(periods: Sequence[float], zero: int, rows: int) -> str:
    slower = sum(period > rows / LEAST_ROTATIONS for period in periods)
    nothing = f" {zero} pairs are zero." if zero > 1 else " One pair is zero." if zero else ""
    if len(periods) == 1:
        return f"The one pair of columns turns at exactly constant speed, once in {periods[0]:.1f} tokens.{nothing}"
    beyond = f" {slower} of them make fewer than two turns within the table." if slower else ""
    return (
        f"All {len(periods)} pairs of columns turn at exactly constant speed, once in {periods[0]:.1f} to "
        f"{periods[-1]:,.0f} tokens.{nothing}{beyond}"
    )


def _figure(found: list[tuple[float, Tensor]]) -> Figure | None:
    """The orbits of up to four hands, spread over the range of periods; None of none."""
    if not found:
        return None
    ordered = sorted(found, key=lambda hand: hand[0])
    step = max(1, math.ceil(len(ordered) / 4))
    caption = f"At most two turns, and at most {MOST_DOTS} positions of them; point at a dot for its position."
    return Figure(tuple(_orbit(*hand) for hand in ordered[::step]), caption=caption, columns=2, height=1.0)


def _orbit(period: float, orbit_T2: Tensor) -> Panel:
    steps = min(len(orbit_T2), 1 + math.ceil(2 * period))
    places = range(0, steps, max(1, math.ceil(steps / MOST_DOTS)))
    shown = orbit_T2[list(places)]
    edge = 1.08 * float(shown.abs().max())
    return Panel(
        (
            mark("line", shown[:, 0], shown[:, 1], emphasis="main"),
            mark("points", shown[:, 0], shown[:, 1], names=tuple(f"position {t + 1}" for t in places)),
        ),
        title=f"{period:,.1f} tokens per turn",
        xlim=(-edge, edge),
        ylim=(-edge, edge),
        equal=True,
    )
