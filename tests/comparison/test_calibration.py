"""The comparison itself, on simulated scores: it claims what it holds."""

from __future__ import annotations

import pytest

from clockhands.comparison.calibration import LAWS, promised, shown


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_equal_variants_are_seldom_told_apart(law: object) -> None:
    """Claimed: 5 %. With 500 draws the binomial's own spread is 1 %."""
    assert 0.02 <= shown(law, drawn=500).value <= 0.08


@pytest.mark.parametrize("law", [law for law in LAWS if law.name != "items decide"], ids=lambda law: law.name)
def test_a_planted_difference_is_seen_as_often_as_promised(law: object) -> None:
    """Promised: 80 %. Where items decide it is more, because the promise counts the seeds alone."""
    assert 0.74 <= shown(law, promised(law), drawn=500).value <= 0.87
