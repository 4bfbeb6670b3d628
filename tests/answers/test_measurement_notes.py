"""How a study was measured, as it stands under a table: the family of its intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measurement_notes import describe_measurements

from clockhands.studies.question import read_questions
from tests.comparison.planted import shares

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
