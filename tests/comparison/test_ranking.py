"""Variants of which too few seeds learned: planted seeds that all score lower, and seeds that do not."""

from __future__ import annotations

import pytest

from clockhands.comparison.verdicts import Verdict, judge
from tests.comparison.planted import shares


def _judge(scores: dict[str, list[float | None]]) -> dict[str, Verdict]:
    return {verdict.variant: verdict for verdict in judge(shares(scores))}


def test_seeds_that_all_score_lower_are_worse_though_few_learned() -> None:
    verdict = _judge({"base": [0.9] * 5, "torn": [0.4, 0.3, 0.02, 0.01, 0.0]})["torn"]
    assert verdict.kind == "worse"
    assert verdict.sentence.startswith("worse: its seeds score 0.0 to ")
    assert verdict.sentence.endswith("(exact rank test, p = 0.008); 2 of 5 seeds learned, and 5 of the baseline's 5")


def test_the_same_seeds_as_a_baseline_make_the_other_better() -> None:
    verdict = _judge({"base": [0.4, 0.3, 0.02, 0.01, 0.0], "sound": [0.9] * 5})["sound"]
    assert verdict.kind == "better" and "exact rank test, p = 0.008" in verdict.sentence


def test_seeds_of_which_some_score_as_high_are_not_told_apart() -> None:
    verdict = _judge({"base": [0.9] * 5, "torn": [0.9, 0.9, 0.02, 0.01, 0.0]})["torn"]
    assert verdict.kind == "too few seeds"
    assert verdict.sentence == "too few seeds to tell: 2 of 5 seeds learned, and 5 of the baseline's 5"


def test_four_such_variants_share_the_error() -> None:
    """Each alone has a p of 0.008; together it is 0.032, above the bound of 0.03."""
    torn = {f"torn {i}": [0.4, 0.3, 0.02, 0.01, 0.0] for i in range(4)}
    verdicts = _judge({"base": [0.9] * 5, **torn})
    assert {verdicts[name].kind for name in torn} == {"too few seeds"}


@pytest.mark.parametrize(("seeds", "test"), [(30, "exact rank test"), (31, "rank test over random divisions")])
def test_a_rank_test_is_called_exact_where_it_is(seeds: int, test: str) -> None:
    """Of 62 values divisions are drawn at random, and "exact" was told of as many as 22."""
    base, torn = [*[0.9] * 4, *[0.15] * (seeds - 4)], [0.3, *[0.01] * (seeds - 1)]
    verdict = _judge({"base": base, "torn": torn})["torn"]
    assert verdict.kind == "worse" and f"({test}, p " in verdict.sentence
