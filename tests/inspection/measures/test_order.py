"""The bars of interventions are means with their intervals."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.measures.order import _describe_shifts, bootstrap_change, draw_changes
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.interventions import OTHERS_PERMUTED, PERMUTED, Effect, Interventions
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject

from .. import planted
from ..tiny import tiny
from .readings import draw_ids, intervene_on


def test_bars_are_means_with_intervals_and_1_has_its_name() -> None:
    generator = torch.Generator().manual_seed(0)
    large, small = 0.5 + 0.1 * torch.randn(24, generator=generator), torch.zeros(24)
    figure = draw_changes({"tokens permuted": large, "shifted by 1": small}, "another text", "the mean")
    bars, line = figure.panels[0].marks
    assert bars.x == ("tokens permuted", "shifted by 1")
    assert bars.y == pytest.approx((float(large.mean()), 0.0))
    assert (bars.low[0], bars.high[0]) == bootstrap_change(large) and (bars.low[1], bars.high[1]) == (0.0, 0.0)
    assert bars.low[0] < float(large.mean()) < bars.high[0]
    assert (line.y, line.label) == ((1.0,), "another text") and figure.panels[
        0
    ].ylabel == "share by which the mean changes"


@pytest.mark.parametrize(
    ("kind", "scheme", "still", "expected"),
    [
        ("encoder", "rope", False, "Shifting all positions by 1, 4, 16 and 64 changes nothing: only distances matter."),
        ("encoder", "rope", True, "Shifting all positions by 1, 4, 16 and 64 changes nothing."),
        ("decoder", "rope", True, "Shifting all positions by 1, 4, 16 and 64 changes nothing."),
        ("encoder", "alibi", False, "There are no absolute positions to shift: only distances matter."),
        ("encoder", "alibi", True, "There are no absolute positions to shift."),
        ("decoder", "alibi", True, "There are no absolute positions to shift."),
        ("encoder", "none", False, "There are no absolute positions to shift."),
        ("decoder", "none", False, "There are no absolute positions to shift."),
    ],
)
def test_only_distances_matter_is_said_where_order_and_distance_both_do(
    kind: str, scheme: str, still: bool, expected: str
) -> None:
    """Zero frequencies and zero slopes are no distances; a causal mask gives order without any distance."""
    model = planted.uniform(kind) if scheme == "none" else planted.kernel(kind, scheme, still=still)
    found, changes = intervene_on(model)
    assert found["cause"].verdict.endswith(expected)
    assert changes.order_matters == (kind == "decoder" or (not still and scheme != "none"))


@pytest.mark.parametrize(
    ("name", "relative"), [("roformer", False), ("bert", False), ("bloom", True), ("t5", True), ("deberta", True)]
)
def test_that_there_is_nothing_to_shift_is_said_of_relative_schemes_alone(name: str, relative: bool) -> None:
    """RoFormer rotates by positions that cannot be shifted from outside: it was said to have no absolute positions."""
    subject = Subject.of(tiny(name))
    assert subject.has_no_absolute_positions == relative
    nothing = Interventions(
        (Effect(PERMUTED, torch.ones(2), torch.ones(2)), Effect(OTHERS_PERMUTED, torch.ones(2), None)), 1.0, 1.0
    )
    ids = draw_ids()
    reading = Reading(subject, Capture(ids, [], [], torch.ones(ids.shape[1], dtype=torch.bool)))
    said = _describe_shifts(reading, nothing, attends_by_distance=True)
    assert ("There are no absolute positions to shift: only distances matter." in said) == relative
    assert ("Its positions cannot be shifted from outside" in said) == (not relative)
    # BERT's can be in shorter windows; RoFormer takes no positions, so that no length of windows helps.
    assert ("in windows of this length" in said) == (name == "bert")


@pytest.mark.parametrize(("scheme", "relative"), [("alibi", True), ("none", True), ("learned", False), ("tupe", False)])
def test_own_schemes_declare_whether_there_is_something_to_shift(scheme: str, relative: bool) -> None:
    assert Subject.of(planted.uniform("encoder", scheme)).has_no_absolute_positions == relative


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        ({1: 0.0, 4: 0.0}, "Shifting all positions by 1 and 4 changes nothing"),
        ({1: 0.0, 4: 0.3}, "With all positions shifted by 4, the mean of the output changes by 30 % of the"),
        ({1: 0.2, 4: 0.3}, "With all positions shifted by 1, the mean of the output changes by 20 % of the"),
    ],
)
def test_every_shift_that_was_tried_is_judged(effects: dict[int, float], expected: str) -> None:
    """Only the shift by one was: a table whose first rows are equal was said to have no absolute positions."""
    shifts = tuple(Effect(f"shifted by {k}", torch.full((2,), x), torch.full((2,), x)) for k, x in effects.items())
    order = (Effect(PERMUTED, torch.ones(2), torch.ones(2)), Effect(OTHERS_PERMUTED, torch.ones(2), None))
    said = _describe_shifts(
        Reading.without_text(Subject.of(planted.uniform())),
        Interventions(shifts + order, 1.0, 1.0),
        attends_by_distance=False,
    )
    assert said.strip().startswith(expected)


def test_a_shift_that_matters_is_reported_with_its_size() -> None:
    model = planted.uniform("encoder", "learned", max_length=64)
    found, _ = intervene_on(model)
    assert "With all positions shifted by 1, the mean of the output changes by" in found["cause"].verdict
    assert "With every position row replaced by their mean, the mean of the output changes by" in found["cause"].verdict


def test_nothing_and_another_text_are_the_ends_of_the_scale() -> None:
    found, _ = intervene_on(planted.uniform("encoder"))
    ends = [(one.name, one.value) for one in found["cause"].references]
    assert ends == [
        ("order ignored", 0.0),
        ("another text", 1.0),
    ]
    assert found["cause"].value == pytest.approx(0.0, abs=1e-6) and found["cause"].light == "bad"


def test_a_head_that_copies_the_previous_token_changes_every_state_and_hardly_their_mean() -> None:
    found, changes = intervene_on(planted.copying())
    assert found["cause.tokens"].value > 0.9  # type: ignore[operator]
    assert changes[OTHERS_PERMUTED].token_change > 0.9, "where a token itself stays in its place too"
    assert found["cause"].value < 0.2, "averaged over the text, nearly the same words are copied"  # type: ignore[operator]
    assert "the state of each token changes by 9" in found["cause.tokens"].verdict
    assert found["cause.tokens"].references[1].name == "two random tokens"


def test_a_bag_of_tokens_has_no_order_in_any_of_the_measures() -> None:
    found, changes = intervene_on(planted.uniform())
    assert found["cause.tokens"].value == pytest.approx(0.0, abs=1e-9)
    assert found["cause"].value == pytest.approx(0.0, abs=1e-9)
    assert changes[OTHERS_PERMUTED].token_change == pytest.approx(0.0, abs=1e-9)
    assert (
        found["cause.tokens"].verdict
        == "The state of no token changes when the tokens are permuted: the model ignores order."
    )
    assert found["cause"].verdict.startswith("When the tokens are permuted, the mean of the output does not change.")
    assert found["cause"].light == found["cause.tokens"].light == "bad"


def test_one_output_for_every_text_gives_no_distance_to_measure_by() -> None:
    model = planted.uniform()
    with torch.no_grad():
        model.encoder.input.tokens.weight.fill_(1.0)  # type: ignore[union-attr]
    found, _ = intervene_on(model)
    assert found["cause"].light == found["cause.tokens"].light == "skip"


def test_texts_that_are_all_the_same_have_tokens_that_are_not() -> None:
    """It was said that every token has the same last state, where every text had the same ones."""
    subject = Subject.of(planted.copying())
    recorded = capture(subject.model, subject.forward, planted.ids(1).repeat(8, 1))
    found = planted.answer("cause.tokens", subject, recorded)
    assert found.light == "info" and "When the tokens of a text are permuted, the state of each token" in found.verdict
    assert planted.answer("cause", subject, recorded).verdict.startswith("All texts have the same mean output")
