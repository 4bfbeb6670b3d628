"""Does the table hold clock hands? What rotates at constant speed all along the position table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table, join_words, make_mark
from clockhands.inspection.estimators.hands import (
    LEAST_AGREEMENT,
    LEAST_ROUNDNESS,
    STEEP_SHARE,
    ExactHands,
    SpectralLine,
    TableLines,
    find_lines,
    read_exact_hands,
)
from clockhands.inspection.estimators.waves import LEAST_TURNS, SURROGATES, Array, make_times, make_trend
from clockhands.inspection.measures.measure import INPUT_HEADING, Measure
from clockhands.inspection.measures.table_rows import PositionRows, read_rows
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Tensor

MOST_ROWS = 1024
"""Rows of the table that are read at most."""
MOST_NAMED = 12
"""Periods that a verdict lists; the table of the finding has all."""
SLOW_SHARE = 0.1
"""Share of the variance from which slow movement is mentioned."""
CLEAR = 1.5
"""How many times as much the speed of a hand must vary as its size, or its size as its speed, to be named alone."""
TURNS = {2: "two turns", 3: "three turns"}
"""How often a line must turn within the table, as words."""
NOISE_MARGIN = 1.2
"""How much longer than noise makes any direction one must be to count as movement."""
MOST_ORBITS, MOST_DOTS = 4, 64
"""Hands that are drawn, and positions of each."""
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
        f"{LEAST_AGREEMENT}, and above that of every line in {SURROGATES} surrogates of what the lines leave, "
        f"tables with the same spectrum and random phases. Reference: the number of "
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
    by_hand = ("hands",)

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
        added = [line.compute_rows(len(rows_ND)) for line in (*lines.rotating, *lines.oscillating)]
        rest_ND = rows_ND - sum(added, np.zeros_like(rows_ND))
        # Slower than two turns is what a constant, a straight line and one to three half waves hold of the rest,
        # beyond what white noise would have there.
        trend = np.linalg.qr(make_trend(len(rows_ND), 3))[0]
        slow = float(((trend.T @ (rest_ND - rest_ND.mean(0))) ** 2).sum())
        by_chance = float((rest_ND**2).sum()) * (trend.shape[1] - 1) / (len(rows_ND) - 1)
        slow_share = max(slow - by_chance, 0.0) / float((rows_ND**2).sum())
        # The orbit of a hand: what it adds, and the rest without the trend, in its plane.
        flat_ND, hands = rest_ND - trend @ (trend.T @ rest_ND), []
        for line in lines.rotating:
            axes = np.linalg.svd(line.plane_2D, full_matrices=False)[2]
            hands.append((line.period, torch.from_numpy((flat_ND + line.compute_rows(len(rows_ND))) @ axes.T)))
        verdict = _describe_lines(lines, len(rows_ND), slow_share) + _describe_untold(rest_ND, lines)
        low_D, high_D = rows.added_ND.aminmax(dim=0)
        resting = int((low_D == high_D).sum())
        if resting:
            verb = "is" if resting == 1 else "are"
            verdict += f" {resting} of {len(low_D)} columns {verb} at rest: the same in every row."
        return self.make_finding(
            verdict,
            float(len(lines.rotating)),
            references=(Reference("smooth surrogates", lines.by_chance),) if lines.surrogates else (),
            unit="hands",
            light="good" if lines.rotating else "info",
            table=Table.of(COLUMNS, [_make_row(line) for line in (*lines.rotating, *lines.oscillating)]),
            figure=_draw_hands(hands),
            details={
                "agreement needed": lines.needed,
                "best agreement without a hand": lines.best_other,
                "surrogates": lines.surrogates,
                "slow share": slow_share,
            },
        )

    def _report_exact(self, rows: PositionRows, hands: ExactHands) -> Finding:
        """Report the hands of a table of which every pair of columns is one, or zero."""
        ordered = sorted(zip(hands.periods, hands.pairs, strict=True))
        return self.make_finding(
            _describe_exact_hands(
                [period for period, _ in ordered], hands.zero_pairs, len(rows.added_ND), hands.resting_pairs
            ),
            float(len(ordered)),
            unit="hands",
            light="good",
            table=Table.of(
                ("tokens per turn", "first column", "second column"), [(period, *pair) for period, pair in ordered]
            ),
            figure=_draw_hands([(period, rows.added_ND[:, pair]) for period, pair in ordered]),
            method="Every pair of columns that is not zero keeps its distance from zero within 0.1 %, and its angle is "
            "a straight line (R² above 0.9999), from row 1 on: the speed is read from the columns as they are.",
            source="Vaswani et al. 2017, section 3.5",
        )


def _make_row(line: SpectralLine) -> tuple[float | str | None, ...]:
    """Return the row of one line in the table of the finding, with ``COLUMNS``."""
    fast, slow = (line.frequency + sign * 1.96 * line.error for sign in (1, -1))
    low = None if line.parts else 2 * math.pi / fast
    high = None if line.parts or slow <= 0 else 2 * math.pi / slow  # the interval of the frequency may reach zero
    fastest, slowest = _find_period_range(line) if line.parts else (None, None)
    rotation = "turns, its speed or size varies" if line.parts else "turns"
    motion = "swings" if line.roundness < LEAST_ROUNDNESS else rotation
    origin = f"columns {join_words(map(str, line.columns))}" if line.columns else "a plane across columns"
    return (line.period, low, high, line.share, line.agreement, line.roundness, motion, origin, fastest, slowest)


def _describe_untold(rest_ND: Array, lines: TableLines) -> str:
    """Say how many hands between the slowest one named and the length of the table were not told apart, at least.

    What the lines leave (``rest_ND``) is fitted with the waves that make 1, 2, ... turns within the table, up to the
    slowest line. Of their amplitudes in all channels, those directions count that are longer than noise of the faster
    waves would make any (Marchenko & Pastur 1967); a hand fills two.
    """
    if not lines.rotating:
        return ""
    count, slowest = len(rest_ND), lines.rotating[-1]
    turns = math.floor(slowest.frequency * count / (2 * math.pi) - 0.5)
    if turns < 1:
        return ""
    spectrum = np.fft.rfft(rest_ND, axis=0) * math.sqrt(2 / count)
    slow, fast = spectrum[1 : turns + 1], spectrum[turns + 2 : (count - 1) // 2]
    if not len(fast):
        return ""
    amplitudes = np.concatenate([slow.real, slow.imag])
    noise = math.sqrt(float(np.median((np.abs(fast) ** 2).mean(1))) / 2)
    longest = noise * (math.sqrt(amplitudes.shape[0]) + math.sqrt(amplitudes.shape[1])) * NOISE_MARGIN
    untold = int((np.linalg.svd(amplitudes, compute_uv=False) > longest).sum()) // 2
    hands = "one more hand" if untold == 1 else f"{untold} more hands"
    sentence = (
        f" Between {slowest.period:.1f} tokens per turn and the {count} rows there is movement enough for at least "
        f"{hands}, which were not told apart."
    )
    return sentence if untold else ""


def _describe_lines(lines: TableLines, num_rows: int, slow_share: float) -> str:
    """Say which hands were found in so many rows of a table, and how much of it moves too slowly to be judged."""
    if lines.rotating:
        hands = f"{len(lines.rotating)} hands turn" if len(lines.rotating) > 1 else "One hand turns"
        speed = "" if any(line.parts for line in lines.rotating) else " at constant speed"
        lowest, surrogates = min(line.agreement for line in lines.rotating), ""
        if lines.surrogates:
            surrogates = f"; lines in {lines.surrogates} tables of smooth noise: at most {lines.best_surrogate:.2f}"
        sentences = (
            f"{hands}{speed}, once in {_list_periods(lines.rotating)} tokens (agreement of the first and the last "
            f"three quarters of the rows: at least {lowest:.2f}{surrogates})."
        )
    else:
        best = f" (best agreement {lines.best_other:.2f}; {lines.needed:.2f} needed)" if lines.best_other > 0 else ""
        sentences = f"No hand of {TURNS[lines.least_turns]} or more was found in the table{best}."
    varying: dict[str, list[str]] = {}
    for line in lines.rotating:
        if line.parts:
            shortest, longest = _find_period_range(line)
            varying.setdefault(_find_variation(line, num_rows), []).append(f"{shortest:.1f} to {longest:.1f}")
    for quantity, ranges in varying.items():
        whose = f"Its {quantity} varies"
        if len(lines.rotating) > 1:
            whose = f"The {quantity} of {len(ranges)} of them varies"
        consist = "it consists" if len(ranges) == 1 else "they consist"
        sentences += f" {whose}: {consist} of several lines, of one turn in {join_words(ranges)} tokens."
    if lines.oscillating:
        count = len(lines.oscillating)
        swings = "One spectral line swings" if count == 1 else f"{count} spectral lines swing"
        sentences += f" {swings} back and forth without turning, once in {_list_periods(lines.oscillating)} tokens."
    if slow_share > SLOW_SHARE:
        sentences += (
            f" {format_percent(slow_share)} of the variance moves more slowly than one turn in {num_rows / 2:.0f} "
            f"tokens; {num_rows} rows are too few to tell whether that turns."
        )
    return sentences


def _find_variation(line: SpectralLine, num_rows: int) -> str:
    """Return what of a hand with parts varies: ``speed``, ``size``, or ``speed or size`` where that is not clear.

    What varies ``CLEAR`` times as much as the other is named. With two lines alone, one of them weak, both vary by the
    same amount: log(1 + ε exp(iδt)) is about ε exp(iδt), whose real and imaginary parts are equally large.
    """
    # Its path, row by row: the amplitudes of its parts, projected on that of the strongest.
    times = make_times(num_rows)
    seen_from = max(line.parts, key=lambda part: part.share).amplitude_D.conj()
    waves = np.exp(1j * np.outer(times, [part.frequency for part in line.parts]))
    path = waves @ np.array([part.amplitude_D @ seen_from for part in line.parts])
    # The logarithm of the path is the logarithm of the size plus i times the angle.
    angles = np.unwrap(np.angle(path))
    lead = float(np.std(angles - np.polyval(np.polyfit(times, angles, 1), times)))
    growth = float(np.std(np.log(np.maximum(np.abs(path), 1e-300))))
    return "speed" if lead > CLEAR * growth else "size" if growth > CLEAR * lead else "speed or size"


def _find_period_range(line: SpectralLine) -> tuple[float, float]:
    """Return the shortest and the longest period of the lines of a hand with parts, in tokens per turn."""
    periods = [line.period, *(part.period for part in line.parts)]
    return min(periods), max(periods)


def _list_periods(lines: Sequence[SpectralLine]) -> str:
    """Return the periods of the lines as ``5.0, 9.0 and 31.0``; of many the first ones and the last."""
    periods = [f"{line.period:.1f}" for line in lines]
    if len(periods) <= MOST_NAMED:
        return join_words(periods)
    return f"{', '.join(periods[: MOST_NAMED - 1])} ... {periods[-1]}"


def _describe_exact_hands(periods: Sequence[float], zero_pairs: int, num_rows: int, resting_pairs: int = 0) -> str:
    """Say how fast the pairs of columns turn, how many rest, and how many do not turn twice in ``num_rows`` rows.

    ``periods`` are in tokens per turn, the shortest first.
    """
    count, slower = len(periods), sum(period > num_rows / LEAST_TURNS for period in periods)
    further = ""
    for number, what in ((zero_pairs, "zero"), (resting_pairs, "at rest: the same in every row")):
        further += f" {'One pair is' if number == 1 else f'{number} pairs are'} {what}." if number else ""
    still = "not zero" if zero_pairs and not resting_pairs else "not at rest"
    which = f"that {'is' if count == 1 else 'are'} {still} " if further else ""
    if slower:
        them = "It makes" if count == 1 else "1 of them makes" if slower == 1 else f"{slower} of them make"
        further += f" {them} fewer than two turns within the {num_rows} rows that were read."
    if count == 1:
        turns = f"turns at exactly constant speed, once in {periods[0]:.1f} tokens"
        return f"The one pair of columns {which}{turns}.{further}"
    slowest = f"{periods[-1]:,.0f}" if periods[-1] >= 100 else f"{periods[-1]:.1f}"
    return (
        f"All {count} pairs of columns {which}turn at exactly constant speed, once in {periods[0]:.1f} to {slowest} "
        f"tokens.{further}"
    )


def _draw_hands(hands: list[tuple[float, Tensor]]) -> Figure | None:
    """Draw the orbits of up to four hands, spread over the range of periods; None if there are none.

    ``hands`` holds the period of each hand, in tokens per turn, and its orbit: [N, 2], from position 1 on.
    """
    if not hands:
        return None
    panels, ordered = [], sorted(hands, key=lambda hand: hand[0])
    for period, orbit_N2 in ordered[:: math.ceil(len(ordered) / MOST_ORBITS)]:
        steps = min(len(orbit_N2), 1 + math.ceil(2 * period))  # two turns at most
        rows = range(0, steps, max(1, math.ceil(steps / MOST_DOTS)))
        points = orbit_N2[list(rows)]
        edge = 1.08 * float(points.abs().max())
        panels.append(
            Panel(
                (
                    make_mark("line", points[:, 0], points[:, 1], emphasis="main"),
                    make_mark("points", points[:, 0], points[:, 1], names=tuple(f"position {row + 1}" for row in rows)),
                ),
                title=f"{period:,.1f} tokens per turn",
                xlabel="along the hand's first axis",
                ylabel="along its second axis",
                xlim=(-edge, edge),
                ylim=(-edge, edge),
                equal=True,
            )
        )
    return Figure(
        tuple(panels),
        caption=f"At most two turns, and at most {MOST_DOTS} positions of them; point at a dot for its position.",
        columns=2,
        height=1.0,
        title="The path of single hands, position by position",
    )
