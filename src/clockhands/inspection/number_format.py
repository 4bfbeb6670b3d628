"""Numbers as verdicts write them: shares in percent, ratios, and a minus sign in place of the hyphen."""

from __future__ import annotations

import math

from clockhands.findings import choose_digits

LEAST_PERCENT = 5e-4
"""A smaller percentage is written as 0.0 %: it is rounding."""


def format_decimal(value: float, *, plus: bool = False, digits: int = 2) -> str:
    """Return a number with two decimals: ``0.52``, ``−0.02``; with ``plus``, all with their sign: ``+0.52``."""
    return f"{round(value, digits) + 0.0:{'+' if plus else ''}.{digits}f}".replace("-", "−")


def format_percent(share: float, more: int = 0) -> str:
    """Return a share as a percentage: ``12 %``, ``9.0 %``, ``−0.02 %``; with ``more`` digits than these."""
    value = 100 * share
    if abs(value) < LEAST_PERCENT:
        return "0.0 %"
    if abs(value) < 0.05:
        return f"{value:.{1 + more}g} %".replace("-", "−")
    return f"{value:.{more + (0 if abs(value) >= 9.95 else 1)}f} %".replace("-", "−")


def format_percent_range(low: float, high: float) -> str:
    """Return an interval of shares: ``90 % to 93 %``, with as many more digits as keep two different ends apart."""
    more = choose_digits(low, high, 0, format_percent)
    return f"{format_percent(low, more)} to {format_percent(high, more)}"


def format_estimate(share: float, low: float, high: float) -> tuple[str, str]:
    """Return a share, and ``95 % interval 90 % to 93 %``; the share has as many digits as its interval."""
    shown = format_percent(share, choose_digits(low, high, 0, format_percent))
    return shown, f"95 % interval {format_percent_range(low, high)}"


def format_ratio(value: float) -> str:
    """Return a ratio above 0 with at least two significant digits and no exponent: ``1,234``, ``4.3``, ``0.0071``."""
    return f"{value:,.{max(0, 1 - math.floor(math.log10(value)))}f}"


def describe_untrained(share: float | None) -> str:
    """Return what the bracket after a value says of the untrained control: ``; untrained 12 %``; empty without one."""
    return "" if share is None else f"; untrained {format_percent(share)}"
