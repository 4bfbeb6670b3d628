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
    older = replace(made, fingerprint="0123")
    assert "plan:0123" in Comparison.from_json(older.to_json()).signature, "a new option changes no old signature"
    assert json.loads(made.to_json())["signature"] == made.signature
    with pytest.raises(DataError, match="no results of a comparison"):
        Comparison.from_json("{}")


def test_the_same_trials_by_another_metric_of_their_items() -> None:
    """By BLEU the variant is worse in every seed; by the other metric, planted beside it, it is better."""
    made = results(seeds=5)
    trials = tuple(
        replace(trial, items=None, other_items={"chrf": tuple(50.0 + 20 * (1 - hit / 100) for hit in trial.items_N)})
        for trial in made.trials
    )
    trials = tuple(replace(trial, items=old.items) for trial, old in zip(trials, made.trials, strict=True))
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
