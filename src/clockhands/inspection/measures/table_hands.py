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
    LEAST_TURNS,
    STEEP_SHARE,
    SURROGATES,
    Array,
    SpectralLine,
    TableLines,
    find_lines,
    make_times,
    make_trend,
)
from clockhands.inspection.estimators.matrix_statistics import ExactHands, read_exact_hands
from clockhands.inspection.measures.measure import INPUT_HEADING, Measure
from clockhands.inspection.measures.table_rows import read_rows
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

MOST_ROWS = 1024
"""Rows of the table that are read at most."""
MOST_NAMED = 12
"""Periods that a verdict lists; the table of the finding has all."""
SLOW_SHARE = 0.1
"""Share of the variance from which slow movement is mentioned."""
CLEAR = 1.5
"""How many times as much the speed of a hand must vary as its size, or its size as its speed, to be named alone."""
NOISE_MARGIN = 1.2
"""How much longer than noise makes any direction one must be to count as movement."""
MOST_ORBITS, MOST_DOTS = 4, 64
"""Hands that are drawn, and positions of each."""
COLUMNS = (
    "tokens per turn", "low", "high", "share of the variance", "agreement", "roundness", "what it does", "read from",
    "fastest period", "slowest period",
)  # fmt: skip
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
        added_ND = read_rows(reading.subject, MOST_ROWS)
        if isinstance(added_ND, str):
            return self.skip(added_ND)
        exact = read_exact_hands(added_ND)
        if not exact.periods:
            return self._estimate(added_ND)
        ordered = sorted(zip(exact.periods, exact.pairs, strict=True))
        return self.make_finding(
            describe_exact_hands(exact, len(added_ND)),
            float(len(ordered)),
            unit="hands",
            light="good",
            table=Table.of(
                ("tokens per turn", "first column", "second column"), [(period, *pair) for period, pair in ordered]
            ),
            figure=draw_hands([(period, added_ND[:, pair]) for period, pair in ordered]),
            method="Every pair of columns that is not zero keeps its distance from zero within 0.1 %, and its angle is "
            "a straight line (R² above 0.9999), from row 1 on: the speed is read from the columns as they are.",
            source="Vaswani et al. 2017, section 3.5",
        )

    def _estimate(self, added_ND: Float[Tensor, "N D"]) -> Finding:
        """Find hands in a table of which not every pair of columns is one."""
        rows_ND = (added_ND - added_ND.mean(0)).numpy()
        lines = find_lines(rows_ND)
        all_lines = (*lines.rotating, *lines.oscillating)
        rest_ND = rows_ND - sum((line.compute_rows(len(rows_ND)) for line in all_lines), np.zeros_like(rows_ND))
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
        verdict = describe_lines(lines, len(rows_ND), slow_share) + _describe_untold(rest_ND, lines)
        resting = int(torch.eq(*added_ND.aminmax(dim=0)).sum())
        if resting:
            verb = "is" if resting == 1 else "are"
            verdict += f" {resting} of {added_ND.shape[1]} columns {verb} at rest: the same in every row."
        return self.make_finding(
            verdict,
            float(len(lines.rotating)),
            references=(Reference("smooth surrogates", lines.by_chance),) if lines.surrogates else (),
            unit="hands",
            light="good" if lines.rotating else "info",
            table=Table.of(COLUMNS, map(make_row, all_lines)),
            figure=draw_hands(hands),
            details={
                "agreement needed": lines.needed,
                "best agreement without a hand": lines.best_other,
                "surrogates": lines.surrogates,
                "slow share": slow_share,
            },
        )


def make_row(line: SpectralLine) -> tuple[float | str | None, ...]:
    """Return the row of one line in the table of the finding, with ``COLUMNS``.

    A hand with parts has the range of their periods in place of an interval.
    """
    low = high = fastest = slowest = None
    motion = "swings" if line.roundness < LEAST_ROUNDNESS else "turns"
    if line.parts:
        fastest, slowest = _find_period_range(line)
        motion = motion.replace("turns", "turns, its speed or size varies")
    else:
        low = 2 * math.pi / (line.frequency + 1.96 * line.error)
        least = line.frequency - 1.96 * line.error
        high = 2 * math.pi / least if least > 0 else None  # the interval of the frequency may reach zero
    origin = f"columns {join_words(map(str, line.columns))}" if line.columns else "a plane across columns"
    return (line.period, low, high, line.share, line.agreement, line.roundness, motion, origin, fastest, slowest)


def _find_period_range(line: SpectralLine) -> tuple[float, float]:
    """Return the shortest and the longest period of the lines of a hand with parts, in tokens per turn."""
    periods = [line.period, *(part.period for part in line.parts)]
    return min(periods), max(periods)


def describe_lines(lines: TableLines, num_rows: int, slow_share: float) -> str:
    """Say which hands were found in so many rows of a table, and how much of it moves too slowly to be judged."""
    count, turns = len(lines.rotating), {2: "two turns", 3: "three turns"}[lines.least_turns]
    best = f" (best agreement {lines.best_other:.2f}; {lines.needed:.2f} needed)" if lines.best_other > 0 else ""
    sentences = f"No hand of {turns} or more was found in the table{best}."
    if lines.rotating:
        hands = f"{count} hands turn" if count > 1 else "One hand turns"
        speed = "" if any(line.parts for line in lines.rotating) else " at constant speed"
        lowest, surrogates = min(line.agreement for line in lines.rotating), ""
        if lines.surrogates:
            surrogates = f"; lines in {lines.surrogates} tables of smooth noise: at most {lines.best_surrogate:.2f}"
        sentences = (
            f"{hands}{speed}, once in {_list_periods(lines.rotating)} tokens (agreement of the first and the last "
            f"three quarters of the rows: at least {lowest:.2f}{surrogates})."
        )
    varying: dict[str, list[str]] = {}
    for line in lines.rotating:
        if line.parts:
            shortest, longest = _find_period_range(line)
            varying.setdefault(_find_variation(line, num_rows), []).append(f"{shortest:.1f} to {longest:.1f}")
    for quantity, ranges in varying.items():
        whose = f"The {quantity} of {len(ranges)} of them varies" if count > 1 else f"Its {quantity} varies"
        consist = "it consists" if len(ranges) == 1 else "they consist"
        sentences += f" {whose}: {consist} of several lines, of one turn in {join_words(ranges)} tokens."
    if lines.oscillating:
        number = len(lines.oscillating)
        swings = "One spectral line swings" if number == 1 else f"{number} spectral lines swing"
        sentences += f" {swings} back and forth without turning, once in {_list_periods(lines.oscillating)} tokens."
    if slow_share > SLOW_SHARE:
        sentences += (
            f" {format_percent(slow_share)} of the variance moves more slowly than one turn in {num_rows / 2:.0f} "
            f"tokens; {num_rows} rows are too few to tell whether that turns."
        )
    return sentences


def _list_periods(lines: Sequence[SpectralLine]) -> str:
    """Return the periods of the lines as ``5.0, 9.0 and 31.0``; of many the first ones and the last."""
    periods = [f"{line.period:.1f}" for line in lines]
    if len(periods) <= MOST_NAMED:
        return join_words(periods)
    return f"{', '.join(periods[: MOST_NAMED - 1])} ... {periods[-1]}"


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


def _describe_untold(rest_ND: Array, lines: TableLines) -> str:
    """Say how many hands between the slowest one named and the length of the table were not told apart, at least.

    What the lines leave is compared with the waves that make 1, 2, ... turns within the table, up to the slowest line.
    Of their amplitudes in all channels, those directions count that are longer than noise of the faster waves would
    make any (Marchenko & Pastur 1967); a hand fills two.
    """
    count = len(rest_ND)
    slowest = lines.rotating[-1] if lines.rotating else None
    turns = math.floor(slowest.frequency * count / (2 * math.pi) - 0.5) if slowest else 0
    if slowest is None or turns < 1 or turns + 2 >= (count - 1) // 2:
        return ""
    spectrum = np.fft.rfft(rest_ND, axis=0) * math.sqrt(2 / count)
    slow, fast = spectrum[1 : turns + 1], spectrum[turns + 2 : (count - 1) // 2]
    amplitudes = np.concatenate([slow.real, slow.imag])
    noise = math.sqrt(float(np.median((np.abs(fast) ** 2).mean(1))) / 2)
    longest = noise * (math.sqrt(amplitudes.shape[0]) + math.sqrt(amplitudes.shape[1])) * NOISE_MARGIN
    untold = int((np.linalg.svd(amplitudes, compute_uv=False) > longest).sum()) // 2
    if not untold:
        return ""
    hands = "one more hand, which was" if untold == 1 else f"{untold} more hands, which were"
    return (
        f" Between {slowest.period:.1f} tokens per turn and the {count} rows there is movement enough for at least "
        f"{hands} not told apart."
    )


def describe_exact_hands(hands: ExactHands, num_rows: int) -> str:
    """Say how fast the pairs of columns turn, how many rest, and how many do not turn twice in ``num_rows`` rows."""
    periods, count, further = sorted(hands.periods), len(hands.periods), ""
    slower = sum(period > num_rows / LEAST_TURNS for period in periods)
    for number, what in ((hands.zero_pairs, "zero"), (hands.resting_pairs, "at rest: the same in every row")):
        further += f" {'One pair is' if number == 1 else f'{number} pairs are'} {what}." if number else ""
    still = "not zero" if hands.zero_pairs and not hands.resting_pairs else "not at rest"
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


def draw_hands(hands: Sequence[tuple[float, Tensor]]) -> Figure | None:
    """Draw the orbits of up to four hands, spread over the range of periods; None if there are none.

    ``hands`` holds the period of each hand, in tokens per turn, and its orbit: [N, 2], from position 1 on.
    """
    if not hands:
        return None
    panels, ordered = [], sorted(hands, key=lambda hand: hand[0])
    for period, orbit_N2 in ordered[:: math.ceil(len(ordered) / MOST_ORBITS)]:
        steps = min(len(orbit_N2), 1 + math.ceil(2 * period))  # two turns at most
        rows = range(0, steps, max(1, math.ceil(steps / MOST_DOTS)))
        x, y = orbit_N2[list(rows)].T
        edge = 1.08 * max(float(x.abs().max()), float(y.abs().max()))
        dots = make_mark("points", x, y, names=tuple(f"position {row + 1}" for row in rows))
        panels.append(
            Panel(
                (make_mark("line", x, y, emphasis="main"), dots),
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
