"""The folder of a comparison: what it refuses, and that more seeds go on in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clockhands.comparison.execution import run_plan
from clockhands.comparison.folder import PLAN, ComparisonFolder, read_comparison
from clockhands.comparison.results import Cost
from clockhands.comparison.trial import Trial
from clockhands.errors import DataError, UsageError
from tests.comparison.planted import plan

COSTS = {name: Cost(parameters=1, steps=6, flops=1, seconds=0.1, changes={}) for name in ("sinusoidal", "learned")}


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


def test_more_seeds_go_on_in_the_same_folder(tmp_path: Path) -> None:
    store = ComparisonFolder(tmp_path / "new")
    assert store.open(plan(), None) is None
    opened = store.open(plan(), COSTS)
    assert opened is not None and len(opened.missing) == 4
    store.add(Trial("learned", 1, "failed", error="no memory"))
    more = store.open(plan(seeds=3), COSTS)
    assert more is not None and len(more.missing) == 5 and ("learned", 1) not in more.missing


def test_fewer_seeds_leave_the_trials_of_the_others_where_they_are(tmp_path: Path) -> None:
    store = ComparisonFolder(tmp_path / "new")
    store.open(plan(seeds=3), COSTS)
    for seed in (1, 3):
        store.add(Trial("learned", seed, "failed", error="no memory"))
    fewer = store.open(plan(), COSTS)
    assert [trial.seed for trial in fewer.trials] == [1] and [trial.seed for trial in fewer.outside] == [3]
    again = store.open(plan(seeds=3), COSTS)
    assert [trial.seed for trial in again.trials] == [1, 3] and not again.outside


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    store = ComparisonFolder(tmp_path / "new")
    store.open(plan(), COSTS)
    store.add(Trial("learned", 1, "failed", error="no memory"))
    with (tmp_path / "new" / "results.jsonl").open("a", encoding="utf8") as stream:
        stream.write('{"variant": "learned", "seed": "x", "status": "failed"}\n{"variant": "lear')
    with pytest.raises(DataError, match=r"line 2 of results\.jsonl is no trial: seed: Input should be a valid integer"):
        read_comparison(tmp_path / "new")
