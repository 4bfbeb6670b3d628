"""A comparison as one document, and as a folder: what it refuses, and that more seeds go on in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clockhands.comparison.execution import run_plan
from clockhands.comparison.findings import conclude
from clockhands.comparison.results import PLAN, Comparison, ComparisonFolder, read_comparison
from clockhands.comparison.trial import Trial
from clockhands.comparison.verdicts import judge
from clockhands.errors import DataError, UsageError
from tests.comparison.planted import COSTS, change_trials, plan, results


def test_results_are_one_document_and_back() -> None:
    made = results(seeds=2)
    assert Comparison.from_json(made.to_json()) == made
    assert json.loads(made.to_json())["signature"] == made.signature
    with pytest.raises(DataError, match="no results of a comparison"):
        Comparison.from_json("{}")


def test_the_same_trials_by_another_metric_of_their_items() -> None:
    """By BLEU the variant is worse in every seed; by the other metric, planted beside it, it is better."""
    made = results(seeds=5)
    planted = change_trials(made, lambda t: {"other_items": {"chrf": tuple(70.0 - hit / 5 for hit in t.items_N)}})
    kept = Comparison.from_json(planted.to_json())
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


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf8")
    with pytest.raises(UsageError, match="exists and holds no comparison; choose another folder"):
        run_plan(plan(), tmp_path)
    with pytest.raises(DataError, match="holds no comparison that can be read"):
        read_comparison(tmp_path)


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ({"margin": 2.0}, {}, "margin"),
        ({}, {"margin": 2.0}, "margin"),
        ({"learned": 5.0, "despite": {"ceiling": "it is a test"}}, {"metric": "chrf"}, "metric and learned"),
    ],
)
def test_the_fields_in_which_two_plans_differ_are_named(
    first: dict[str, Any], second: dict[str, Any], named: str, tmp_path: Path
) -> None:
    store = ComparisonFolder(tmp_path / "new")
    store.open(plan(**first), COSTS)
    with pytest.raises(UsageError, match=f"another plan, which differs in {named}; they are left alone"):
        store.open(plan(**second), COSTS)


@pytest.mark.parametrize(
    "change", [{"costs": []}, {"costs": {"learned": 1}}, {"costs": {}}, {"plan": []}, {"plan": {"recipe": {}}}]
)
def test_a_plan_of_another_shape_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    ComparisonFolder(tmp_path).open(plan(), COSTS)
    content = json.loads((tmp_path / PLAN).read_text("utf8"))
    for damaged in ({**content, **change}, {**content, "plan": {**content["plan"], "budget": ["steps"]}}):
        (tmp_path / PLAN).write_text(json.dumps(damaged), "utf8")
        with pytest.raises(DataError, match="holds no comparison that can be read"):
            read_comparison(tmp_path)


def test_more_seeds_go_on_in_the_same_folder_and_fewer_leave_the_others_where_they_are(tmp_path: Path) -> None:
    store = ComparisonFolder(tmp_path / "new")
    assert len(store.open(plan(), lambda: COSTS).missing) == 4
    store.add(Trial("learned", 1, "failed", error="no memory"))
    more = store.open(plan(seeds=3), COSTS)
    assert len(more.missing) == 5 and ("learned", 1) not in more.missing
    store.add(Trial("learned", 3, "failed", error="no memory"))
    fewer, again = store.open(plan(), COSTS), store.open(plan(seeds=3), COSTS)
    assert [trial.seed for trial in fewer.trials] == [1] and [trial.seed for trial in fewer.outside] == [3]
    assert [trial.seed for trial in again.trials] == [1, 3] and not again.outside


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    store = ComparisonFolder(tmp_path / "new")
    store.open(plan(), COSTS)
    store.add(Trial("learned", 1, "failed", error="no memory"))
    with (tmp_path / "new" / "results.jsonl").open("a", encoding="utf8") as stream:
        stream.write('{"variant": "learned", "seed": "x", "status": "failed"}\n{"variant": "lear')
    with pytest.raises(DataError, match=r"line 2 of results\.jsonl is no trial: seed: Input should be a valid integer"):
        read_comparison(tmp_path / "new")
