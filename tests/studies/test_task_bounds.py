"""What a study's page says of its task without order: the ceiling, or why it says nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clockhands.data import Ceiling
from clockhands.studies import STUDIES, task_bounds
from clockhands.studies.task_bounds import describe_order_blind


def test_the_ceiling_is_told_with_its_population_and_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(task_bounds, "_CEILINGS", {})
    monkeypatch.setattr(
        task_bounds, "find_plan_ceiling", lambda plan: calls.append(plan) or Ceiling(0.25, 0.25, 0.25, "all 8 items")
    )
    study = STUDIES["order-at-all"]
    told = [describe_order_blind(study, study.planned) for _ in range(2)]
    assert told[0] == told[1] and "at most 25.0 % of these items right (all 8 items)" in told[0]
    assert len(calls) == 1
    assert (
        describe_order_blind(replace(study, unscored=True), study.planned)
        == f"{told[0]} No model of this study is scored."
    )


def test_where_the_ceiling_says_nothing_the_reason_stands_and_nothing_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_bounds, "find_plan_ceiling", lambda plan: pytest.fail("no text is needed"))
    study = STUDIES["how-far"]
    assert "the ceiling says nothing" in describe_order_blind(study, study.planned)
    own = replace(study.planned, despite={"ceiling": "It is of another size."})
    assert describe_order_blind(study, own) == "It is of another size."
