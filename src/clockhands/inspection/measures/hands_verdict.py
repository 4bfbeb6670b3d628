"""The sentences about the clock hands of a position table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clockhands.findings import join_words
from clockhands.inspection.estimators.column_lines import SpectralLine
from clockhands.inspection.estimators.spectral_lines import TableLines
from clockhands.inspection.estimators.surrogates import LEAST_TURNS
from clockhands.inspection.estimators.wave_fit import make_times
from clockhands.inspection.number_format import format_percent

MOST_NAMED = 12
"""Periods that a verdict lists; the table of the finding has all."""
SLOW_SHARE = 0.1
"""Share of the variance from which slow movement is mentioned."""
CLEAR = 1.5
"""How many times as much the speed of a hand must vary as its size, or its size as its speed, to be named alone."""
TURNS = {2: "two turns", 3: "three turns"}
"""How often a line must turn within the table, as words."""


def describe_lines(lines: TableLines, num_rows: int, slow_share: float) -> str:
    """Say which hands were found in so many rows of a table, and how much of it moves too slowly to be judged."""
    sentences = [
        _describe_rotating(lines),
        _describe_varying(lines.rotating, num_rows),
        _describe_oscillating(lines.oscillating),
    ]
    if slow_share > SLOW_SHARE:
        sentences.append(
            f"{format_percent(slow_share)} of the variance moves more slowly than one turn in {num_rows / 2:.0f} "
            f"tokens; {num_rows} rows are too few to tell whether that turns."
        )
    return " ".join(sentence for sentence in sentences if sentence)


def _describe_rotating(lines: TableLines) -> str:
    """Say how many hands turn, how fast, and what they were compared with."""
    if not lines.rotating:
        best = f" (best agreement {lines.best_other:.2f}; {lines.needed:.2f} needed)" if lines.best_other > 0 else ""
        return f"No hand of {TURNS[lines.least_turns]} or more was found in the table{best}."
    hands = f"{len(lines.rotating)} hands turn" if len(lines.rotating) > 1 else "One hand turns"
    lowest = min(line.agreement for line in lines.rotating)
    surrogates = (
        f"; lines in {lines.surrogates} tables of smooth noise: at most {lines.best_surrogate:.2f}"
        if lines.surrogates
        else ""
    )
    speed = "" if any(line.parts for line in lines.rotating) else " at constant speed"
    return (
        f"{hands}{speed}, once in {_list_periods(lines.rotating)} tokens (agreement of the first and the last three "
        f"quarters of the rows: at least {lowest:.2f}{surrogates})."
    )


def _describe_varying(hands: Sequence[SpectralLine], num_rows: int) -> str:
    """Say which hands change their speed or their size, and which lines each is made of; empty where none does."""
    varying: dict[str, list[str]] = {}
    for line in hands:
        if line.parts:
            periods = "{:.1f} to {:.1f}".format(*find_period_range(line))
            varying.setdefault(find_variation(line, num_rows), []).append(periods)
    sentences = []
    for quantity, ranges in varying.items():
        whose = f"Its {quantity} varies" if len(hands) == 1 else f"The {quantity} of {len(ranges)} of them varies"
        consist = "it consists" if len(ranges) == 1 else "they consist"
        sentences.append(f"{whose}: {consist} of several lines, of one turn in {join_words(ranges)} tokens.")
    return " ".join(sentences)


def find_variation(line: SpectralLine, num_rows: int) -> str:
    """Return what of a hand with parts varies: ``speed``, ``size``, or ``speed or size`` where that is not clear.

    The logarithm of its path is the logarithm of its size plus i times its angle. What varies ``CLEAR`` times as much
    as the other is named. With two lines alone, one of them weak, both vary by the same amount: log(1 + ε exp(iδt)) is
    about ε exp(iδt), whose real and imaginary parts are equally large.
    """
    path = line.compute_path(num_rows)
    times, angles = make_times(num_rows), np.unwrap(np.angle(path))
    lead = float(np.std(angles - np.polyval(np.polyfit(times, angles, 1), times)))
    growth = float(np.std(np.log(np.maximum(np.abs(path), 1e-300))))
    return "speed" if lead > CLEAR * growth else "size" if growth > CLEAR * lead else "speed or size"


def _describe_oscillating(lines: Sequence[SpectralLine]) -> str:
    """Say which lines swing without turning; empty where none does."""
    if not lines:
        return ""
    swings = "One spectral line swings" if len(lines) == 1 else f"{len(lines)} spectral lines swing"
    return f"{swings} back and forth without turning, once in {_list_periods(lines)} tokens."


def find_period_range(line: SpectralLine) -> tuple[float, float]:
    """Return the shortest and the longest period of the lines of a hand with parts, in tokens per turn."""
    periods = [line.period, *(part.period for part in line.parts)]
    return min(periods), max(periods)


def _list_periods(lines: Sequence[SpectralLine]) -> str:
    """Return the periods of the lines as ``5.0, 9.0 and 31.0``; of many the first ones and the last."""
    periods = [f"{line.period:.1f}" for line in lines]
    if len(periods) <= MOST_NAMED:
        return join_words(periods)
    return f"{', '.join(periods[: MOST_NAMED - 1])} ... {periods[-1]}"


def describe_exact_hands(periods: Sequence[float], zero_pairs: int, num_rows: int) -> str:
    """Say how fast the pairs of columns turn, how many are zero, and how many do not turn twice in ``num_rows`` rows.

    ``periods`` are in tokens per turn, the shortest first.
    """
    slower = sum(period > num_rows / LEAST_TURNS for period in periods)
    zero = f" {zero_pairs} pairs are zero." if zero_pairs > 1 else " One pair is zero." if zero_pairs else ""
    pairs = "that is not zero turns" if zero_pairs else "turns"
    if len(periods) == 1:
        slow = f" It makes fewer than two turns within the {num_rows} rows that were read." if slower else ""
        return (
            f"The one pair of columns {pairs} at exactly constant speed, once in {periods[0]:.1f} tokens.{zero}{slow}"
        )
    verb = "makes" if slower == 1 else "make"
    slow = f" {slower} of them {verb} fewer than two turns within the {num_rows} rows that were read." if slower else ""
    pairs = "that are not zero turn" if zero_pairs else "turn"
    slowest = f"{periods[-1]:,.0f}" if periods[-1] >= 100 else f"{periods[-1]:.1f}"
    return (
        f"All {len(periods)} pairs of columns {pairs} at exactly constant speed, once in {periods[0]:.1f} to "
        f"{slowest} tokens.{zero}{slow}"
    )
