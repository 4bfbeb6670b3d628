"""The verdict on a comparison, as a sentence with its numbers."""

from __future__ import annotations

from clockhands.comparison.statistics import MIN_SEEDS, Difference
from clockhands.findings import digits_apart


def verdict(
    found: Difference | None, seeds: int, *, higher_is_better: bool, digits: int = 1, most: float | None = None
) -> str:
    """One sentence: "better by 2.1 [0.8, 3.3]", "no difference shown (a difference of 1.5 would have been seen)".

    ``most``: no two scores are further apart.
    """
    if found is None or seeds < MIN_SEEDS:
        return f"too few seeds to tell ({seeds} of at least {MIN_SEEDS})"
    if not found.shown:
        if found.error == 0:
            return "no difference: the same on every test item of every seed"
        if most is not None and found.detectable > most:
            return "no difference shown (the seeds differ so much that none would have been seen)"
        return f"no difference shown (a difference of {number(found.detectable, digits)} would have been seen)"
    better = (found.value > 0) == higher_is_better
    low, high = sorted((abs(found.low), abs(found.high)))
    digits = digits_apart(low, high, digits, number)
    size = number(abs(found.value), digits)
    return f"{'better' if better else 'worse'} by {size} [{number(low, digits)}, {number(high, digits)}]"


def number(value: float, digits: int = 1) -> str:
    """Rounded to ``digits`` decimals, and to more where that would leave nothing."""
    while digits < 6 and value and round(abs(value), digits) < 10**-digits:
        digits += 1
    return f"{value:.{digits}f}"
