"""The variance of a mean over seeds and groups of test items."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clockhands.comparison.statistics.paired import estimate_difference
from clockhands.comparison.statistics.variance import VarianceParts, find_detectable


def test_degrees_of_freedom_are_those_of_satterthwaite() -> None:
    """By hand: (2 + 3 - 1)² / (2²/4 + 3²/10 + 1²/40) = 8.312, and never fewer than the seeds give."""
    assert VarianceParts(seed=2, item=3, cell=1, seeds=5, groups=11).freedom == pytest.approx(16 / 1.925)
    assert VarianceParts(seed=2, item=0, cell=2, seeds=5, groups=11).freedom == 4


def test_detectable_is_seen_with_the_power_it_names() -> None:
    """The power of a t test of 9 pairs for an effect of 1.0 standard deviations is 0.7474 (G*Power: 0.75)."""
    sample = 9
    effect = find_detectable(1 / math.sqrt(sample), sample - 1, power=0.7474)
    assert effect == pytest.approx(1.0, abs=0.01)


def test_what_could_have_been_detected_is_as_often_too_small_as_too_large() -> None:
    """Five seeds of one item: the standard error of the mean of normal numbers is 1 / √5."""
    rng = np.random.default_rng(9)
    promised = [estimate_difference(rng.normal(0, 1, (5, 1)), np.zeros((5, 1))).detectable for _ in range(200)]
    assert np.median(np.array(promised, dtype=float)) == pytest.approx(find_detectable(1 / math.sqrt(5), 4), rel=0.08)
