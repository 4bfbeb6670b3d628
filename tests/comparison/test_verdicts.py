"""Every sentence of a verdict is said where it is true, and not where it is false."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from clockhands.comparison.findings import conclude
from clockhands.comparison.learning import find_groups
from clockhands.comparison.results import Comparison, Cost
from clockhands.comparison.statistics.paired import Difference, estimate_difference
from clockhands.comparison.trial import Trial
from clockhands.comparison.verdicts import Verdict, describe_difference, format_number, judge
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


def gap_of(noise: np.ndarray, shift: float) -> Difference:
    return estimate_difference(shift + noise - noise.mean(), np.zeros_like(noise))


def test_verdicts_are_sentences_with_their_numbers() -> None:
    noise = np.random.default_rng(2).normal(0, 2, (6, 100))
    up, down = gap_of(noise, 5), gap_of(noise, -5)
    better = describe_difference(up, 6, higher_is_better=True, margin=1.0)[1]
    assert better == f"better by {up.value:.1f} points [{up.low:.1f}, {up.high:.1f}]"
    assert describe_difference(up, 6, higher_is_better=False, margin=1.0)[0] == "worse"
    worse = describe_difference(down, 6, higher_is_better=True, margin=1.0)[1]
    assert worse == f"worse by {-down.value:.1f} points [{-down.high:.1f}, {-down.low:.1f}]"
    assert describe_difference(up, 6, higher_is_better=True, margin=9.0)[1].endswith(
        ", less than the margin of 9 points"
    )
    small = replace(up, value=0.5, low=0.498, high=0.502)
    for margin, unit, said in (
        (1.0, "points of BLEU", "1 point of BLEU"),
        (1.0, "nats", "1 nat"),
        (2, "nats", "2 nats"),
    ):
        text = describe_difference(small, 6, higher_is_better=True, margin=margin, unit=unit)[1]
        assert text.endswith(f" {unit} [0.498, 0.502], less than the margin of {said}")
    narrow = replace(up, value=5.0, low=4.961, high=4.964)
    assert (
        describe_difference(narrow, 6, higher_is_better=True, margin=1.0)[1] == "better by 5.000 points [4.961, 4.964]"
    )
    assert describe_difference(up, 4, higher_is_better=True, margin=1.0)[1] == "too few seeds to tell (4 of at least 5)"
    assert (
        describe_difference(None, 1, higher_is_better=True, margin=1.0)[1] == "too few seeds to tell (1 of at least 5)"
    )


def test_equal_is_said_within_the_margin_alone() -> None:
    none = gap_of(np.random.default_rng(2).normal(0, 2, (6, 100)), 0.0)
    widest = max(-none.inner[0], none.inner[1])
    kind, said = describe_difference(none, 6, higher_is_better=True, margin=1.01 * widest, digits=2)
    assert kind == "equivalent"
    assert said == (
        f"equivalent: the difference is from −{-none.inner[0]:.2f} to +{none.inner[1]:.2f} points, "
        f"within ±{1.01 * widest:g}"
    )
    kind, said = describe_difference(none, 6, higher_is_better=True, margin=0.99 * widest, digits=2)
    assert kind == "undecided"
    assert said == (
        f"undecided: the difference is from −{-none.low:.2f} to +{none.high:.2f} points "
        f"({none.detectable:.2f} could have been detected)"
    )
    said = describe_difference(none, 6, higher_is_better=True, margin=0.1, detecting=False)[1]
    assert "detected" not in said


@pytest.mark.parametrize(
    ("value", "said"),
    [(12.34, "12.3"), (0.1, "0.1"), (0.0, "0.0"), (0.04, "0.04"), (-0.003, "-0.003"), (0.0000042, "0.000004")],
)
def test_a_number_has_as_many_decimals_as_show_it(value: float, said: str) -> None:
    assert format_number(value) == said


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
