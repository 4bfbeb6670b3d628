"""Every sentence of a verdict is said where it is true, and not where it is false."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from clockhands.comparison.findings import conclude
from clockhands.comparison.learning import find_groups
from clockhands.comparison.results import Comparison, Cost
from clockhands.comparison.statistics.paired import PairedDifference, estimate_difference
from clockhands.comparison.trial import Trial
from clockhands.comparison.verdicts import Verdict, describe_difference, format_number, judge
from clockhands.errors import DataError
from tests.comparison.planted import change_trials, results, shares


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


def test_scores_are_of_the_seeds_that_learned() -> None:
    made = shares({"base": [0.9] * 10, "torn": [0.9] * 7 + [0.0] * 3}, items=400)
    torn = judged(made)["torn"]
    assert torn.score == pytest.approx(90, abs=2) and torn.interval is not None and torn.interval[0] > 80
    assert torn.difference is not None and torn.difference.seeds == 7
    assert torn.sentence.endswith(
        " points among the seeds that learned; 7 of 10 seeds learned, and 10 of the baseline's 10"
    )
    assert "could have been detected" not in torn.sentence and torn.kind == "undecided"


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
    made = change_trials(results(), lambda trial: {"items": tuple(np.repeat(100.0 * (rng.random(100) < 0.5), 2))})
    groups = tuple(n // 2 for n in range(200))
    mixed = rng.permutation(200)  # in another order nothing tells that they are twins
    apart = change_trials(made, lambda trial: {"items": tuple(trial.items_N[mixed])})
    grouped = change_trials(made, lambda trial: {"groups": groups})
    alone, twins = judge(apart)[0], judge(grouped)[0]
    assert find_groups(grouped) == groups
    assert alone.score == twins.score and alone.interval is not None and twins.interval is not None
    assert twins.interval[1] - twins.interval[0] >= alone.interval[1] - alone.interval[0]
    assert twins.difference is None and judge(apart)[1].difference.items == 200


def gap_of(noise: np.ndarray, shift: float) -> PairedDifference:
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
    for gap, seeds, told in (
        (narrow, 6, "better by 5.000 points [4.961, 4.964]"),
        (up, 4, "too few seeds to tell (4 of at least 5)"),
        (None, 1, "too few seeds to tell (1 of at least 5)"),
    ):
        assert describe_difference(gap, seeds, higher_is_better=True, margin=1.0)[1] == told


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


TORN: list[float | None] = [0.4, 0.3, 0.02, 0.01, 0.0]
FOUR = {f"torn {place}": TORN for place in range(3)}


@pytest.mark.parametrize(
    ("base", "scores", "others", "kind", "sentence"),
    [
        ([0.9] * 5, TORN, {}, "worse", r"worse: its seeds score 0\.0 to .* \(exact rank test, p = 0\.008\); "
         "2 of 5 seeds learned, and 5 of the baseline's 5"),
        (TORN, [0.9] * 5, {}, "better", r"better: .* \(exact rank test, p = 0\.008\); .*"),
        ([0.9] * 5, [0.9, 0.9, 0.02, 0.01, 0.0], {}, "too few seeds",
         "too few seeds to tell: 2 of 5 seeds learned, and 5 of the baseline's 5"),
        ([0.9] * 5, TORN, FOUR, "too few seeds", "too few seeds to tell: .*"),
        ([*[0.9] * 4, *[0.15] * 26], [0.3, *[0.01] * 29], {}, "worse", r".* \(exact rank test, p .*"),
        ([*[0.9] * 4, *[0.15] * 27], [0.3, *[0.01] * 30], {}, "worse", r".* \(rank test over random divisions, p .*"),
        ([0.9] * 5, [0.0] * 5, {}, "worse", r"worse by .* \(exact test, p = 0\.008\)"),
        ([0.9] * 8, [0.0] * 8, {}, "worse", r"worse by .* \(exact test, p < 0\.001\)"),
        ([0.9] * 5, [None] * 5, {}, "worse", "worse: 0 of 5 seeds learned, and 5 of the baseline's 5 "
         r"\(exact test, p = 0\.008\); 5 of 5 diverged"),
        ([0.9] * 5, [None, None, 0.9, 0.9, 0.9], {}, "too few seeds", "too few .*"),
        ([None] * 5, [0.9] * 5, {}, "better", r"better: .* \(exact test, p = 0\.008\).*"),
        ([0.5] * 12, [0.9] * 5 + [0.0] * 7, {}, "worse",
         r"worse: 5 of 12 seeds learned, and 12 of the baseline's 12 .*; those that learned are better by \d.*"),
    ],
    ids=["all lower", "all higher", "some as high", "four share the error", "exact up to 60 values", "drawn beyond",
         "p of 2 in 252 tables", "p of 2 in 12,870", "diverged", "two of five are chance", "baseline diverged",
         "fewer learn, and better"],
)  # fmt: skip
def test_what_some_seeds_learned_and_others_did_not_is_told_by_exact_tests(
    base: list[float | None],
    scores: list[float | None],
    others: dict[str, list[float | None]],
    kind: str,
    sentence: str,
) -> None:
    """Of four variants whose p is 0.008 alone, it is 0.032 together, above the bound of 0.03."""
    verdict = judged(shares({"base": base, "other": scores, **others}))["other"]
    assert verdict.kind == kind and re.fullmatch(sentence, verdict.sentence), verdict.sentence
    assert (verdict.score is None) == (scores == [None] * len(scores))
    assert verdict.learning_p == pytest.approx(2 / 252) or r"(exact test, p = 0\.008" not in sentence
