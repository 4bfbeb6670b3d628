"""The share of trainings that learn: the exact intervals of Clopper and Pearson."""

from __future__ import annotations

from exact.seeds import bound_learned


def test_few_seeds_leave_the_share_open() -> None:
    """Of five successes in five the lower end is the share p with p⁵ = 0.025, which is 47.8 %."""
    shares = bound_learned()
    assert len(shares) == 6 + 11
    assert (shares["5 of 5"], shares["0 of 5"], shares["3 of 5"]) == ("at least 48 %", "at most 52 %", "15 to 95 %")
    assert 0.475**5 < 0.025 < 0.485**5
