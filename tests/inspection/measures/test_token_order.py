"""Order matters to the state of each token where a head copies the one before, and not in a bag of tokens."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.reading.capture import capture
from clockhands.inspection.reading.interventions import OTHERS_PERMUTED
from clockhands.models.subject import Subject

from .. import planted
from .readings import (
    intervene_on,
)


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
