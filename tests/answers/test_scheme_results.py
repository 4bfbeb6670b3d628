"""What is told of a scheme, on results whose truth is planted: it changes where the results do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scheme_results import MOST_TOLD, Result, choose_results, collect_results, describe_result, list_largest, list_users

from clockhands.comparison import Comparison
from clockhands.comparison.results import Cost
from clockhands.comparison.trial import LongerText, Trial
from clockhands.studies import STUDIES

PLANNED = STUDIES["which-layers"].planned
BASE, SINKS = PLANNED.baseline, "windows alone, sinks"
FOUR, EIGHT = "4 × 65 tokens", "8 × 65 tokens"


def plant(
    losses: dict[str, float], growths: dict[str, float] | None = None, seeds: int = 6, flops: int = 10
) -> Comparison:
    """Results of a study of language models: the loss of each variant, and its growth on text of four times the length.

    Twice as long text is refused.
    """
    plan = replace(
        PLANNED, variants=tuple(PLANNED.variant(name) for name in losses), seeds=tuple(range(1, seeds + 1))
    )  # fmt: skip
    rng = np.random.default_rng(5)
    hard_N = rng.normal(0, 0.3, 60)
    trials = []
    for name, loss in losses.items():
        for seed in plan.seeds:
            items_N = loss + hard_N + rng.normal(0, 0.003, 60)
            far = float(items_N.mean()) + (growths or {}).get(name, 0.5) + float(rng.normal(0, 0.001))
            longer = {FOUR: LongerText(loss=far), EIGHT: LongerText(refused="the table ends")}
            scores = {"loss": float(items_N.mean())}
            trials.append(Trial(name, seed, "finished", items=tuple(items_N), scores=scores, steps=6, longer=longer))
    costs = {name: Cost(parameters=1000, steps=6, flops=flops, seconds=0.1, changes={}) for name in losses}
    return Comparison(plan, costs, tuple(trials))


def tell(results: Sequence[Result]) -> list[str]:
    return [describe_result(result, "rope") for result in results]


@pytest.mark.parametrize(
    ("loss", "growth", "verdict", "longer", "worse"),
    [
        (1.9, 0.5, "better by 0.1", "its loss grows (+0.5", False),
        (2.1, 0.0, "worse by 0.1", "its loss holds (", True),
        (2.0, -0.2, "equivalent", "its loss falls (−0.2", False),
    ],
)
def test_a_sentence_is_what_was_measured(loss: float, growth: float, verdict: str, longer: str, worse: bool) -> None:
    measured = {"which-layers": plant({BASE: 2.0, SINKS: loss}, {SINKS: growth})}
    (result,) = collect_results(measured)["sinks"]
    said = describe_result(result, "sinks")
    assert said.startswith(f"*{SINKS}* (rope + window + sinks), loss on Python's source, against *rope*: {verdict}")
    assert f"; at 4 times the trained length {longer}" in said and "8 times" not in said
    assert result.worse is worse


def test_a_growth_that_is_not_shown_is_undecided() -> None:
    made = plant({BASE: 2.0, SINKS: 1.9})
    rng = np.random.default_rng(2)
    trials = [
        replace(trial, longer={FOUR: LongerText(loss=trial.scores["loss"] + float(rng.normal(0, 1)))})
        for trial in made.trials
    ]
    (result,) = collect_results({"which-layers": replace(made, trials=tuple(trials))})["sinks"]
    assert "; whether its loss grows at 4 times the trained length is undecided (" in describe_result(result, "sinks")


def test_too_few_seeds_tell_nothing_and_the_scheme_is_used_all_the_same() -> None:
    measured = {"which-layers": plant({BASE: 2.0, SINKS: 1.0}, seeds=3)}
    assert "sinks" not in collect_results(measured)
    assert list_users(measured)["sinks"] == ["which-layers", "which-layers-recall"]


def test_the_baseline_tells_how_it_reads_longer_text() -> None:
    made = plant({BASE: 2.0, SINKS: 1.9})
    results = collect_results({"which-layers": made})["rope"]
    assert any(
        re.match(r"\*rope\*, loss on Python's source: [\d.]+ \[.+\], the baseline; at 4", said)
        for said in tell(results)
    )
    short = tuple(replace(trial, longer={}) for trial in made.trials)
    results = collect_results({"which-layers": replace(made, trials=short)})["rope"]
    assert [result.verdict.variant for result in results] == [SINKS]


def test_of_two_sizes_the_one_with_more_computation_is_told() -> None:
    small, large = plant({BASE: 2.0, SINKS: 1.9}), plant({BASE: 2.0, SINKS: 2.1}, flops=20)
    for measured in (
        {"which-layers": small, "which-layers.twice": large},
        {"which-layers.twice": large, "which-layers": small},
    ):
        results = list_largest(collect_results(measured)["sinks"])
        assert [(result.name, result.worse) for result in results] == [("which-layers.twice", True)]


def test_of_many_results_each_study_is_told_and_the_plain_variants_first() -> None:
    names = [variant.name for variant in PLANNED.variants]
    losses = {name: 2.0 + 0.1 * place for place, name in enumerate(names)}
    measured = {"which-layers": plant(losses), "which-layers-recall": plant({BASE: 2.0, "base 100": 1.9})}
    results = list_largest(collect_results(measured)["rope"])
    told = choose_results(results)
    assert len(told) == MOST_TOLD < len(results)
    assert "which-layers-recall" in {result.study for result in told}
    assert {frozenset({"rope"})} == {result.use.used for result in told}
    assert [result.study for result in choose_results(results, 2)] == ["which-layers", "which-layers-recall"]
