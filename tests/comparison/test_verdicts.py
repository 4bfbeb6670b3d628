"""Every sentence of a verdict is said where it is true, and not where it is false."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from clockhands.comparison.results import Comparison, Cost
from clockhands.comparison.score_matrix import find_groups
from clockhands.comparison.trial import Trial
from clockhands.comparison.verdict_findings import conclude
from clockhands.comparison.verdicts import Verdict, judge
from clockhands.errors import DataError
from tests.comparison.planted import results, shares


def judged(comparison: Comparison) -> dict[str, Verdict]:
    return {verdict.variant: verdict for verdict in judge(comparison)}


def test_the_planted_truth_is_found() -> None:
    verdicts = judged(results())
    assert verdicts["base"].sentence == "the baseline"
    assert verdicts["better"].sentence.startswith("better by 1") and verdicts["better"].probability == 1
    assert verdicts["worse"].sentence.startswith("worse by 1") and verdicts["worse"].probability == 0
    assert verdicts["same"].sentence.startswith("undecided: the difference is from −")
    assert verdicts["better"].difference is not None and verdicts["better"].difference.comparisons == 3
    assert verdicts["better"].difference.adjusted < 0.01 < verdicts["same"].difference.adjusted


def test_two_seeds_are_too_few() -> None:
    assert {verdict.sentence for verdict in judge(results(seeds=2))[1:]} == {"too few seeds to tell (2 of at least 5)"}
    assert judge(results(seeds=1))[1].sentence == "too few seeds to tell (1 of at least 5)"
    assert conclude(results(seeds=2))["compare.verdict"].light == "warn"
    assert [verdict.interval is None for verdict in judge(results(seeds=2))] == [True] * 4


def test_a_margin_of_the_plan_decides_what_is_equal() -> None:
    rates = {"base": [0.5] * 8, "other": [0.5] * 8}
    assert judged(shares(rates, items=2000, margin=6.0))["other"].kind == "equivalent"
    assert judged(shares(rates, items=2000))["other"].kind == "undecided"


def test_perfect_scores_are_not_certain() -> None:
    verdicts = judged(shares({"base": [1.0] * 5, "same": [1.0] * 5}))
    assert verdicts["base"].interval == pytest.approx((98.78, 100.0), abs=0.01)
    assert verdicts["same"].kind == "undecided"
    assert verdicts["same"].sentence == (
        "undecided: the same on every test item of every seed; over further items the difference is from −1.5 to +1.5 "
        "points"
    )
    assert judged(shares({"base": [1.0] * 5, "same": [1.0] * 5}, items=1000))["same"].kind == "equivalent"


def test_nothing_learned_is_no_equality() -> None:
    made = shares({"base": [0.0] * 5, "other": [0.0] * 5}, items=2000)
    other = judged(made)["other"]
    assert other.kind == "undecided"
    assert other.sentence == (
        "undecided: neither learned (0.0 % against 0.0 %), so nothing is known of their difference"
    )
    low = replace(made, plan=replace(made.plan, metric="chrf"))
    assert "neither learned (0.0 against 0.0)" in judged(low)["other"].sentence, "chrF is no share"
    finding = conclude(made)["compare.verdict"]
    assert "Nothing was learned by any variant" in finding.verdict and finding.light == "warn"
    assert "Nothing was learned" not in conclude(results())["compare.verdict"].verdict


def test_divergence_of_all_seeds_is_a_finding() -> None:
    verdicts = judged(shares({"base": [0.9] * 5, "lost": [None] * 5, "rare": [None, None, 0.9, 0.9, 0.9]}))
    assert verdicts["lost"].kind == "worse" and verdicts["lost"].score is None
    assert verdicts["lost"].sentence == (
        "worse: 0 of 5 seeds learned, and 5 of the baseline's 5 (exact test, p = 0.008); 5 of 5 diverged"
    )
    assert verdicts["rare"].kind == "too few seeds", "two of five may be chance"
    turned = judged(shares({"base": [None] * 5, "sound": [0.9] * 5}))["sound"]
    assert (turned.kind, turned.learning_p) == ("better", pytest.approx(2 / 252))


def test_scores_are_of_the_seeds_that_learned() -> None:
    made = shares({"base": [0.9] * 10, "torn": [0.9] * 7 + [0.0] * 3}, items=400)
    torn = judged(made)["torn"]
    assert torn.score == pytest.approx(90, abs=2) and torn.interval is not None and torn.interval[0] > 80
    assert torn.difference is not None and torn.difference.seeds == 7
    assert torn.sentence.endswith(
        " points among the seeds that learned; 7 of 10 seeds learned, and 10 of the baseline's 10"
    )
    assert "could have been detected" not in torn.sentence and torn.kind == "undecided"


def test_fewer_seeds_that_learn_better_are_both_told() -> None:
    """One of ten seeds learns; the scores of the baseline that mostly learns are lower than its."""
    made = shares({"base": [0.5] * 12, "torn": [0.9] * 5 + [0.0] * 7}, items=400)
    torn = judged(made)["torn"]
    assert torn.kind == "worse"
    assert re.search(
        r"^worse: 5 of 12 seeds learned, and 12 of the baseline's 12 .*; those that learned are better by \d",
        torn.sentence,
    )


def test_a_longer_budget_is_shown() -> None:
    made = results()
    costs = {**made.costs, "better": replace(made.costs["better"], steps=900)}
    verdicts = judged(replace(made, costs=costs))
    assert verdicts["better"].sentence.endswith("; 900 steps against 6")
    assert "against" not in verdicts["worse"].sentence
    assert isinstance(costs["better"], Cost)


def test_items_without_a_score_are_named() -> None:
    made = results()
    numbers = Trial("same", 2, "finished", items=(1.0, float("nan"), *[2.0] * 197, float("inf")))
    trials = tuple(numbers if trial.key == ("same", 2) else trial for trial in made.trials)
    with pytest.raises(DataError, match=r"trial of 'same' with seed 2 has no score for test items 1, 199 \(from 0\)"):
        judge(replace(made, trials=trials))


def test_twins_make_intervals_wider() -> None:
    rng = np.random.default_rng(4)
    made = results()
    trials = [replace(trial, items=tuple(np.repeat(100.0 * (rng.random(100) < 0.5), 2))) for trial in made.trials]
    groups = tuple(n // 2 for n in range(200))
    mixed = rng.permutation(200)  # in another order nothing tells that they are twins
    apart = [replace(trial, items=tuple(trial.items_N[mixed])) for trial in trials]
    alone = judge(replace(made, trials=tuple(apart)))[0]
    twins = judge(replace(made, trials=tuple(replace(trial, groups=groups) for trial in trials)))[0]
    assert find_groups(replace(made, trials=tuple(replace(trial, groups=groups) for trial in trials))) == groups
    assert alone.score == twins.score and alone.interval is not None and twins.interval is not None
    assert twins.interval[1] - twins.interval[0] >= alone.interval[1] - alone.interval[0]
    assert twins.difference is None and judge(replace(made, trials=tuple(apart)))[1].difference.items == 200


@pytest.mark.parametrize(("seeds", "told"), [(5, "p = 0.008"), (8, "p < 0.001")])
def test_a_p_too_small_for_three_digits_is_told_as_a_bound(seeds: int, told: str) -> None:
    """All of 5 against none of 5: 2 of C(10, 5) = 252 tables are as extreme; of 8 against 8, 2 of 12,870."""
    verdict = judged(shares({"base": [0.9] * seeds, "dead": [0.0] * seeds}))["dead"]
    assert f"(exact test, {told})" in verdict.sentence
