"""A comparison as one document."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clockhands.comparison.results import Comparison
from clockhands.comparison.verdict_findings import conclude
from clockhands.comparison.verdicts import judge
from clockhands.errors import DataError, UsageError
from tests.comparison.planted import results


def test_results_are_one_document_and_back() -> None:
    made = results(seeds=2)
    assert Comparison.from_json(made.to_json()) == made
    assert json.loads(made.to_json())["signature"] == made.signature
    with pytest.raises(DataError, match="no results of a comparison"):
        Comparison.from_json("{}")


def test_the_same_trials_by_another_metric_of_their_items() -> None:
    """By BLEU the variant is worse in every seed; by the other metric, planted beside it, it is better."""
    made = results(seeds=5)
    trials = tuple(
        replace(trial, other_items={"chrf": tuple(50.0 + 20 * (1 - hit / 100) for hit in trial.items_N)})
        for trial in made.trials
    )
    kept = Comparison.from_json(replace(made, trials=trials).to_json())
    assert kept.other_metrics == ("chrf",) and made.other_metrics == ()
    own = {verdict.variant: verdict.kind for verdict in judge(kept)}
    other = {verdict.variant: verdict.kind for verdict in judge(kept.scored_by("chrf"))}
    assert (own["better"], own["worse"]) == ("better", "worse")
    assert (other["better"], other["worse"]) == ("worse", "better")
    names = [finding.name for finding in conclude(kept).items]
    assert names[:2] == ["compare.verdict", "compare.verdict.chrf"]
    with pytest.raises(UsageError, match="the trials have no chrf of their items"):
        made.scored_by("chrf")


def test_trials_that_the_plan_does_not_have_count_for_nothing_and_are_told() -> None:
    """Six seeds were run, and the plan has two; a variant was renamed. They stay in the document."""
    made = results(seeds=6)
    fewer = Comparison.of(replace(made.plan, seeds=(1, 2)), made.costs, made.trials)
    assert len(fewer.trials) == 8 and len(fewer.outside) == 16
    assert {verdict.sentence for verdict in judge(fewer)[1:]} == {"too few seeds to tell (2 of at least 5)"}
    assert "16 more not counted, of seeds or variants that the plan does not have" in conclude(fewer).facts["trials"]
    assert "not counted" not in conclude(made).facts["trials"]
    back = Comparison.from_json(fewer.to_json())
    assert back == fewer
    again = Comparison.of(made.plan, made.costs, (*back.trials, *back.outside))
    assert {*again.missing} == set() and judge(again) == judge(made)
    other = replace(made.trials[0], variant="renamed", items="1" * 7)
    assert judge(Comparison.of(made.plan, made.costs, (*made.trials, other))) == judge(made)
