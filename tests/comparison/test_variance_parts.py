"""The variance of a mean over seeds and groups of test items."""

from __future__ import annotations

import pytest

from clockhands.comparison.variance_parts import VarianceParts


def test_degrees_of_freedom_are_those_of_satterthwaite() -> None:
    """By hand: (2 + 3 - 1)² / (2²/4 + 3²/10 + 1²/40) = 8.312, and never fewer than the seeds give."""
    assert VarianceParts(seed=2, item=3, cell=1, seeds=5, groups=11).freedom == pytest.approx(16 / 1.925)
    assert VarianceParts(seed=2, item=0, cell=2, seeds=5, groups=11).freedom == 4
