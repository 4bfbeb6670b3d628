"""How a study was measured, as it stands under a table: the family of its intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measurement_notes import describe_earlier_plan, describe_measurements, describe_missing, describe_order_blind
from question import read_questions

from clockhands.data import Ceiling
from clockhands.studies import STUDIES, soundness
from tests.comparison.planted import results, shares

QUESTIONS = read_questions()
ALIKE = "; each p is for all models of this study that are tested alike"


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({"v": [0.9] * 5}, "one compared with the baseline\n"),
        ({"v": [0.9] * 5, "w": [0.8] * 5}, "2 compared with the baseline together; 1 is shown"),
        (
            {"v": [0.9] * 5, "w": [0.8] * 5, "x": [0.9, 0.9, 0.0, 0.0, 0.0]},
            "3 compared with the baseline, 2 of them by",
        ),
        ({"v": [0.9] * 5, "x": [0.9, 0.9, 0.0, 0.0, 0.0]}, "2 compared with the baseline; 1 is shown"),
    ],
)
def test_seeds_that_did_not_learn_leave_the_family_of_intervals(
    rates: dict[str, list[float | None]], said: str
) -> None:
    made = shares({"base": [0.9] * 5, **rates})
    cells = ("x", "[[scale/kind:v]]"), ("y", "[[scale/verdict:base]]")
    asked = replace(QUESTIONS["scale"], rows=cells, more=())
    (line, _) = describe_measurements(asked, {"scale": made})
    assert said in f"{line}\n".replace(ALIKE, "") and line.startswith("- [scale](studies/scale.md): corpus roles")


def test_that_a_p_is_for_several_models_is_said_where_one_is_shown() -> None:
    """Equal counts of seeds have another p where more models are tested beside them."""
    cells = ("x", "[[scale/kind:v]]"), ("y", "[[scale/verdict:base]]")
    asked = replace(QUESTIONS["scale"], rows=cells, more=())

    def describe(**rates: list[float | None]) -> str:
        return describe_measurements(asked, {"scale": shares({"base": [0.9] * 5, **rates})})[0]

    assert describe(v=[0.0] * 5, w=[0.0] * 5).endswith(ALIKE)
    assert ALIKE not in describe(v=[0.9] * 5, w=[0.8] * 5), "no verdict has a p"
    assert ALIKE not in describe(v=[0.0] * 5), "one model alone"


def test_an_earlier_task_is_told_by_what_differs() -> None:
    roles = STUDIES["order-at-all"]
    comparison = replace(results(), plan=roles.make_plan())
    assert describe_earlier_plan(roles, comparison) == ""
    tables = {**comparison.plan.recipe.tables, "data": {**comparison.plan.recipe.tables["data"], "clauses": 0.0}}
    earlier = replace(comparison, plan=replace(comparison.plan, recipe=replace(comparison.plan.recipe, tables=tables)))
    assert "(data.clauses was 0.0, now 0.5)" in describe_earlier_plan(roles, earlier)


def test_the_ceiling_is_told_with_its_population_and_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(soundness, "_CEILINGS", {})
    monkeypatch.setattr(
        soundness, "find_plan_ceiling", lambda plan: calls.append(plan) or Ceiling(0.25, 0.25, 0.25, "all 8 items")
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
    monkeypatch.setattr(soundness, "find_plan_ceiling", lambda plan: pytest.fail("no text is needed"))
    study = STUDIES["how-far"]
    assert "the ceiling says nothing" in describe_order_blind(study, study.planned)
    own = replace(study.planned, despite={"ceiling": "It is of another size."})
    assert describe_order_blind(study, own) == "It is of another size."


def test_what_has_not_been_run_is_told() -> None:
    whole = results(seeds=6)
    assert describe_missing(whole) == ""
    one = replace(whole, trials=tuple(trial for trial in whole.trials if trial.seed == 1))
    assert describe_missing(one) == (
        "Not all of it has been run: 1 of 6 seeds of each variant so far (4 of 24 trainings). Fewer than 5 seeds "
        "decide nothing, whatever the scores are."
    )
    nearly = replace(whole, trials=whole.trials[1:])
    assert describe_missing(nearly).endswith("5 to 6 of 6 seeds of each variant so far (23 of 24 trainings).")
