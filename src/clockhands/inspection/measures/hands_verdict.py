"""The sentences about the clock hands of a position table."""

from __future__ import annotations

from collections.abc import Sequence

from clockhands.findings import join_words
from clockhands.inspection.estimators.column_lines import SpectralLine
from clockhands.inspection.estimators.spectral_lines import TableLines
from clockhands.inspection.estimators.surrogates import LEAST_TURNS
from clockhands.inspection.number_format import format_percent

MOST_NAMED = 12
"""Periods that a verdict lists; the table of the finding has all."""
SLOW_SHARE = 0.1
"""Share of the variance from which slow movement is mentioned."""


def describe_lines(lines: TableLines, num_rows: int, slow_share: float) -> str:
    """Say which hands were found in a table of so many rows, and how much of it moves too slowly to be judged."""
    sentences = [_describe_rotating(lines), _describe_varying(lines), _describe_oscillating(lines.oscillating)]
    if slow_share > SLOW_SHARE:
        sentences.append(
            f"{format_percent(slow_share)} of the variance moves more slowly than one turn in {num_rows / 2:.0f} "
            f"tokens; a table of {num_rows} rows is too short to tell whether that turns."
        )
    return " ".join(sentence for sentence in sentences if sentence)


def _describe_rotating(lines: TableLines) -> str:
    """Say how many hands turn, how fast, and what they were compared with."""
    if not lines.rotating:
        best = f" (best agreement {lines.best_other:.2f}; {lines.needed:.2f} needed)" if lines.best_other > 0 else ""
        return f"No hand of two turns or more was found in the table{best}."
    hands = f"{len(lines.rotating)} hands turn" if len(lines.rotating) > 1 else "One hand turns"
    lowest = min(line.agreement for line in lines.rotating)
    surrogates = f"; {lines.surrogates} smooth surrogates reach {lines.best_surrogate:.2f}" if lines.surrogates else ""
    speed = "" if any(line.parts for line in lines.rotating) else " at constant speed"
    return (
        f"{hands}{speed}, once in {_list_periods(lines.rotating)} tokens (the table's two ends agree by at least "
        f"{lowest:.2f}{surrogates})."
    )


def _describe_varying(lines: TableLines) -> str:
    """Say which hands turn at a speed that varies; empty where none does."""
    varying = [line for line in lines.rotating if line.parts]
    if not varying:
        return ""
    ranges = join_words("{:.1f} to {:.1f}".format(*find_period_range(line)) for line in varying)
    if len(lines.rotating) == 1:
        return f"Its speed varies: one turn in {ranges} tokens."
    verb = "turns" if len(varying) == 1 else "turn"
    return f"{len(varying)} of them {verb} at a speed that varies: one turn in {ranges} tokens."


def _describe_oscillating(lines: Sequence[SpectralLine]) -> str:
    """Say which lines swing without turning; empty where none does."""
    if not lines:
        return ""
    return f"The table swings back and forth without turning, once in {_list_periods(lines)} tokens."


def find_period_range(line: SpectralLine) -> tuple[float, float]:
    """Return the shortest and the longest period of a hand whose speed varies, in tokens per turn."""
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
        return f"The one pair of columns {pairs} at exactly constant speed, once in {periods[0]:.1f} tokens.{zero}"
    slow = f" {slower} of them make{'s' * (slower == 1)} fewer than two turns within the table." if slower else ""
    pairs = "that are not zero turn" if zero_pairs else "turn"
    return (
        f"All {len(periods)} pairs of columns {pairs} at exactly constant speed, once in {periods[0]:.1f} to "
        f"{periods[-1]:,.0f} tokens.{zero}{slow}"
    )
