"""The pictures of the studies: the points are means of what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import fmean

import pytest
from study_figure import draw_study

from clockhands.comparison import Comparison
from clockhands.studies import STUDIES
from tests.answers import kept


def read(name: str) -> tuple[Comparison, list[dict]]:
    text = kept.read_text(name)
    return Comparison.from_json(text), json.loads(text)["trials"]


def test_a_line_a_variant() -> None:
    comparison, trials = read("do-positions-survive")
    panel = draw_study(STUDIES["do-positions-survive"], comparison).panels[0]
    (line,) = (mark for mark in panel.marks if (mark.kind, mark.label) == ("line", "post-norm"))
    own = [trial["inside"]["after"] for trial in trials if trial["variant"] == "post-norm"]
    assert line.x == (0, 1, 2, 3, 4)
    assert line.y == pytest.approx(
        [fmean(values[f"position read back, layer {i}"] for values in own) for i in range(5)]
    )


def test_a_line_a_measure() -> None:
    comparison, _ = read("how-wide")
    panel = draw_study(STUDIES["how-wide"], comparison).panels[0]
    assert panel.marks[1].x == ("32", "64", "128", "256", "512", "1024")
    assert len([mark for mark in panel.marks if mark.kind == "line"]) == 5


def test_the_loss_by_length() -> None:
    comparison, trials = read("how-far")
    panel = draw_study(STUDIES["how-far"], comparison).panels[0]
    (line,) = (mark for mark in panel.marks if (mark.kind, mark.label) == ("line", "alibi"))
    own = [trial for trial in trials if trial["variant"] == "alibi"]
    expected = [fmean(trial["scores"]["loss"] for trial in own)]
    expected += [fmean(trial["longer"][f"{n} × 65 tokens"]["loss"] for trial in own) for n in (2, 4, 8)]
    assert line.y == pytest.approx(expected)


def test_a_measure_by_step() -> None:
    """Before training is step 0; of one variant without a label the lines are named by the measures."""
    comparison, trials = read("scale.long")
    form = {"along": "steps", "xlabel": "step", "ylabel": "times", "measures": {"word over position": "words"}}
    study = replace(STUDIES["scale"], figure={**form, "variants": {"√d, shared": "with", "1, shared": "without"}})
    panel = draw_study(study, comparison).panels[0]
    assert [mark.label for mark in panel.marks if mark.kind == "line"] == ["with, words", "without, words"]
    line, own = panel.marks[3], [trial["inside"] for trial in trials if trial["variant"] == "1, shared"]
    assert line.x[0] == 0 and line.x[-1] == own[0]["during"][-1][0]
    ends = ([inside["before"] for inside in own], [inside["during"][-1][1] for inside in own])
    expected = [fmean(values["word over position"] for values in end) for end in ends]
    assert [line.y[0], line.y[-1]] == pytest.approx(expected)
    alone = replace(study, figure={**form, "variants": {"1, shared": ""}})
    assert draw_study(alone, comparison).panels[0].marks[1].label == "words"


def test_a_variant_without_a_trial_is_named() -> None:
    comparison, _ = read("how-far")
    trials = tuple(trial for trial in comparison.trials if trial.variant != "alibi")
    with pytest.raises(ValueError, match="the figure of the study how-far draws alibi, of which no trial finished"):
        draw_study(STUDIES["how-far"], replace(comparison, trials=trials))


def test_without_a_form_it_is_that_of_the_verdicts() -> None:
    comparison, _ = read("order-at-all")
    assert draw_study(STUDIES["order-at-all"], comparison).panels[0].marks[0].label == "mean and 95 % interval"


def test_a_mean_of_only_the_seeds_that_learned_is_named_so() -> None:
    comparison, _ = read("which-layers-recall")
    label = draw_study(STUDIES["which-layers-recall"], comparison).panels[0].marks[0].label
    assert label == "mean and 95 % interval; where only some seeds learned, of those"
