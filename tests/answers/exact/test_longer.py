"""Bases, YaRN and temperatures, against published and hand-computed figures."""

from __future__ import annotations

import math

import pytest
from exact.longer import find_bases, find_least_base, find_lowest_sum, measure_temperature, measure_yarn


def test_the_least_base_is_that_of_the_paper() -> None:
    """Men et al. 2024, table 2: 4.3e3 for 1k tokens, 2.7e4 for 4k, 8.4e4 for 8k, by a search in other steps."""
    assert find_least_base(1024) == pytest.approx(4.3e3, rel=0.03)
    assert find_least_base(4096, 4300) == pytest.approx(2.7e4, rel=0.1)
    assert find_least_base(8192, 29_000) == pytest.approx(8.4e4, rel=0.01)


@pytest.mark.parametrize(("length", "base"), [(1, 100), (50, 10), (1000, 10_000)])
def test_the_lowest_sum_is_that_of_every_distance_by_itself(length: int, base: int) -> None:
    sums = [sum(math.cos(m * base ** (-c / 64)) for c in range(64)) for m in range(length)]
    assert find_lowest_sum(length, base) == pytest.approx(min(sums), abs=1e-9)


def test_hands_that_never_come_round() -> None:
    told = find_bases()
    turns = [4096 / (2 * math.pi * 10_000 ** (2 * c / 128)) for c in range(64)]
    assert told["never round in 4096, base 10000"] == sum(turn < 1 for turn in turns)
    assert told["never round in 131072, base 500000"] > told["never round in 131072, base 10000"]


def test_yarn_changes_all_scores_and_few_angles() -> None:
    told = measure_yarn()
    assert told["scores times, factor 4"] == pytest.approx((0.1 * math.log(4) + 1) ** 2)
    assert 0 < told["hands kept, factor 4"] < 64 and told["similarity, factor 4"] < told["similarity, factor 32"]
    assert told["similarity, factor 4"] < told["similarity in 4096, factor 4"] < 1


def test_one_key_among_many() -> None:
    told = measure_temperature()
    assert told["plain, 1000"] == pytest.approx(100 * math.exp(10) / (math.exp(10) + 999))
    assert told["plain, 1000000"] < 5 < 90 < told["scaled, 1000000"]
