"""The sentence about one difference from the baseline, and numbers as verdicts write them."""

from __future__ import annotations

from typing import Literal

from clockhands.comparison.plan_settings import format_margin
from clockhands.comparison.statistics import MIN_SEEDS, Difference
from clockhands.findings import choose_digits

Kind = Literal["baseline", "better", "worse", "equivalent", "undecided", "too few seeds"]
"""What a verdict says. "equivalent": shown to differ by less than the plan's margin; "undecided": neither that nor a
difference is shown."""


def describe_difference(
    gap: Difference | None,
    seeds: int,
    *,
    higher_is_better: bool,
    margin: float,
    digits: int = 1,
    unit: str = "points",
    detecting: bool = True,
) -> tuple[Kind, str]:
    """Return what a difference from the baseline means, as a kind and as one sentence with its numbers.

    ``seeds``: how many pair with the baseline. ``margin``: smaller differences count as equal, as set before measuring.
    ``unit``: of the metric. ``detecting``: say which difference could have been detected, where none was.

    >>> describe_difference(None, 4, higher_is_better=True, margin=1.0)
    ('too few seeds', 'too few seeds to tell (4 of at least 5)')
    """
    if gap is None or seeds < MIN_SEEDS:
        return "too few seeds", f"too few seeds to tell ({seeds} of at least {MIN_SEEDS})"
    joined = describe_block(gap.block)
    if gap.significant:
        kind, text = _describe_significant(gap, higher_is_better, margin, digits, unit)
        return kind, text + joined
    if gap.is_within(margin):
        low, high = format_range(*gap.inner, digits)
        return "equivalent", f"equivalent: the difference is from {low} to {high} {unit}, within ±{margin:g}{joined}"
    low, high = format_range(gap.low, gap.high, digits)
    same = "the same on every test item of every seed; over further items " if gap.error == 0 and not gap.value else ""
    text = f"undecided: {same}the difference is from {low} to {high} {unit}"
    if detecting and gap.detectable:
        text += f" ({format_number(gap.detectable, digits)} could have been detected)"
    return "undecided", text + joined


def describe_block(length: int) -> str:
    """Say that so many neighbouring items count as one; an empty text where each counts."""
    return "" if length == 1 else f"; test items hang together with their neighbours, so each {length} count as one"


def _describe_significant(
    gap: Difference, higher_is_better: bool, margin: float, digits: int, unit: str
) -> tuple[Kind, str]:
    """Say by how much a variant is better or worse, and whether that is less than the margin."""
    kind: Kind = "better" if (gap.value > 0) == higher_is_better else "worse"
    low, high = sorted((abs(gap.low), abs(gap.high)))
    digits = choose_digits(low, high, digits, format_number)
    size, low_text, high_text = (format_number(value, digits) for value in (abs(gap.value), low, high))
    small = f", less than the margin of {format_margin(margin, unit)}" if high < margin else ""
    return kind, f"{kind} by {size} {unit} [{low_text}, {high_text}]{small}"


def format_range(low: float, high: float, digits: int) -> tuple[str, str]:
    """Return both ends with their signs, and digits enough to tell them apart, and each from 0; -0.0 is 0.0.

    >>> format_range(-0.0004, 0.072, 3)
    ('−0.0004', '+0.072')
    """
    digits = choose_digits(low, high, digits)
    return _write_signed(low, digits), _write_signed(high, digits)


def _write_signed(value: float, digits: int) -> str:
    """Return a number with its sign, and with more digits where those would all be 0; what stays 0 is +0."""
    text = format_number(abs(value), digits)
    if not float(text):
        return f"+{0:.{digits}f}"
    return f"{'−' if value < 0 else '+'}{text}"


def format_number(value: float, digits: int = 1) -> str:
    """Return a number with ``digits`` decimals, and with more where those would all be 0."""
    while digits < 6 and value and round(abs(value), digits) < 10**-digits:
        digits += 1
    return f"{value:.{digits}f}"
