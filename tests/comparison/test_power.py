"""What could have been detected: against the power of a t test as published, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clockhands.comparison.power import find_detectable
from clockhands.comparison.statistics import estimate_difference


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
