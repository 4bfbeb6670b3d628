"""Numbers as verdicts write them: shares in percent, ratios, and a minus sign in place of the hyphen."""

from __future__ import annotations

import math

from clockhands.findings import choose_digits


def format_decimal(value: float, *, plus: bool = False) -> str:
    """Return a number with two decimals: ``0.52``, ``−0.02``; with ``plus``, all with their sign: ``+0.52``."""
    return (f"{value:+.2f}" if plus else _write_without_minus_zero(value, 2)).replace("-", "−")


def format_percent(share: float) -> str:
    """Return a share as a percentage, with one decimal below ten: ``12 %``, ``9.0 %``, ``0.2 %``."""
    value = 100 * share
    if abs(value) < 0.05:
        return "0.0 %"
    return (f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %").replace("-", "−")


def format_percent_range(low: float, high: float) -> str:
    """Return an interval of shares: ``90 % to 93 %``, with as many more digits as keep two different ends apart.

    Ends that are both below 0.005 % are written as ``0.0 % to 0.0 %``: what differs there is rounding.
    """
    if format_percent(low) != format_percent(high) or max(abs(low), abs(high)) < 0.00005:
        return f"{format_percent(low)} to {format_percent(high)}"
    digits = choose_digits(100 * low, 100 * high, 0 if abs(100 * low) >= 9.95 else 1, _write_without_minus_zero)
    ends = (_write_without_minus_zero(100 * end, digits) for end in (low, high))
    return " % to ".join(ends).replace("-", "−") + " %"


def _write_without_minus_zero(value: float, digits: int) -> str:
    """Write a number with so many decimals; what rounds to zero has no sign, so that −0.0 and 0.0 look the same."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def format_ratio(value: float) -> str:
    """Return a ratio above 0 with at least two significant digits and no exponent: ``1,234``, ``4.3``, ``0.0071``."""
    return f"{value:,.{max(0, 1 - math.floor(math.log10(value)))}f}"


def describe_untrained(share: float | None) -> str:
    """Return what the bracket after a value says of the untrained control: ``; untrained 12 %``; empty without one."""
    return "" if share is None else f"; untrained {format_percent(share)}"
