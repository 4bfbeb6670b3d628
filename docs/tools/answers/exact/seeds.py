"""How large the share of trainings that learn can be, if so many of a few seeds did."""

from __future__ import annotations

from clockhands.comparison.learning import Learning

TOTALS = (5, 10)
"""How many seeds the studies have."""


def bound_learned() -> dict[str, str]:
    """Return the exact 95 % interval of the share of trainings that learn, as text, by how many seeds did."""
    values = {}
    for total in TOTALS:
        for learned in range(total + 1):
            seeds = tuple(range(total))
            count, _, interval = str(Learning(seeds[:learned], seeds[learned:])).partition(", ")
            values[count] = interval
    return values
