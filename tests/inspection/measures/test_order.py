"""What order does is found where it was planted: in states, in their mean, and in the next token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.inspection.measures.order import (
    _compute_losses,
    _describe_shifts,
    _draw_changes,
    _find_prefix_lengths,
    _judge,
    bootstrap_change,
)
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.interventions import OTHERS_PERMUTED, PERMUTED, Effect, Interventions
from clockhands.inspection.reading.reading import Reading
from clockhands.model import Transformer
from clockhands.models.subject import Subject

from .. import planted
from ..tiny import VOCAB as TINY_VOCAB
from ..tiny import tiny
from .readings import draw_ids, intervene_on


def test_bars_are_means_with_intervals_and_1_has_its_name() -> None:
    generator = torch.Generator().manual_seed(0)
    large, small = 0.5 + 0.1 * torch.randn(24, generator=generator), torch.zeros(24)
    figure = _draw_changes({"tokens permuted": large, "shifted by 1": small}, "another text", "the mean")
    bars, line = figure.panels[0].marks
    assert bars.x == ("tokens permuted", "shifted by 1")
    assert bars.y == pytest.approx((float(large.mean()), 0.0))
    assert (bars.low[0], bars.high[0]) == bootstrap_change(large) and (bars.low[1], bars.high[1]) == (0.0, 0.0)
    assert bars.low[0] < float(large.mean()) < bars.high[0]
    assert (line.y, line.label) == ((1.0,), "another text")
    assert figure.panels[0].ylabel == "share by which the mean changes"


ROTATED = "Shifting all positions by 1, 4, 16 and 64 changes nothing"
RELATIVE = "There are no absolute positions to shift"
ORDER, NO_ORDER = (
    (Effect(PERMUTED, size_N, size_N), Effect(OTHERS_PERMUTED, size_N, None))
    for size_N in (torch.ones(2), torch.zeros(2))
)


@pytest.mark.parametrize(
    ("kind", "scheme", "still", "expected"),
    [
        ("encoder", "rope", False, f"{ROTATED}: only distances matter."),
        ("encoder", "rope", True, f"{ROTATED}."),
        ("decoder", "rope", True, f"{ROTATED}."),
        ("encoder", "alibi", False, f"{RELATIVE}: only distances matter."),
        ("decoder", "alibi", False, f"{RELATIVE}: only distances matter, and how many tokens the mask shows each."),
        ("encoder", "alibi", True, f"{RELATIVE}."),
        ("decoder", "alibi", True, f"{RELATIVE}."),
        ("encoder", "none", False, f"{RELATIVE}."),
        ("decoder", "none", False, f"{RELATIVE}."),
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
    reading = Reading(subject, _text(draw_ids()))
    said = _describe_shifts(reading, Interventions(ORDER, 1.0, 1.0), attends_by_distance=True)
    assert (f"{RELATIVE}: only distances matter" in said) == relative
    blind = _describe_shifts(reading, Interventions(NO_ORDER, 1.0, 1.0), attends_by_distance=True)
    assert (f"{RELATIVE}." in blind) == relative
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
    shifts = tuple(Effect(f"shifted by {k}", torch.full((2,), x), torch.full((2,), x)) for k, x in effects.items())
    reading = Reading.without_text(Subject.of(planted.uniform()))
    said = _describe_shifts(reading, Interventions(shifts + ORDER, 1.0, 1.0), attends_by_distance=False)
    assert said.strip().startswith(expected)


def test_a_shift_that_matters_is_reported_with_its_size() -> None:
    model = planted.uniform("encoder", "learned", max_length=64)
    found, _ = intervene_on(model)
    assert "With all positions shifted by 1, the mean of the output changes by" in found["cause"].verdict
    assert "With every position row replaced by their mean, the mean of the output changes by" in found["cause"].verdict


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
    said = "The state of no token changes when the tokens are permuted: the model ignores order."
    assert found["cause.tokens"].verdict == said
    assert found["cause"].verdict.startswith("When the tokens are permuted, the mean of the output does not change.")
    assert found["cause"].light == found["cause.tokens"].light == "bad"
    ends = [(end.name, end.value) for end in found["cause"].references]
    assert ends == [("order ignored", 0.0), ("another text", 1.0)]


def test_one_output_for_every_text_gives_no_distance_to_measure_by() -> None:
    model = planted.uniform()
    with torch.no_grad():
        model.encoder.input.tokens.weight.fill_(1.0)  # type: ignore[union-attr]
    found, _ = intervene_on(model)
    assert found["cause"].light == found["cause.tokens"].light == "skip"


def test_texts_that_are_all_the_same_have_tokens_that_are_not() -> None:
    subject = Subject.of(planted.copying())
    recorded = capture(subject.model, subject.forward, planted.ids(1).repeat(8, 1))
    found = planted.answer("cause.tokens", subject, recorded)
    assert found.light == "info" and "When the tokens of a text are permuted, the state of each token" in found.verdict
    assert planted.answer("cause", subject, recorded).verdict.startswith("All texts have the same mean output")


def _bigram(kind: str) -> Transformer:
    """Writes the successor (id + 7) of the last token, or of no token in particular: all of those before it alike."""
    model = planted.alone("decoder") if kind == "bigram" else planted.uniform("decoder", keeps=False)
    core: Any = model
    with torch.no_grad():
        core.decoder.input.tokens.weight.copy_(torch.randn(planted.VOCAB, 32) / 32**0.5)
        core.output.weight.copy_(3 * core.decoder.input.tokens.weight.roll(7, dims=0))
        if kind == "bigram":  # so little of the others that they are seen, and tell nothing
            core.decoder.blocks[0].attention.out.weight.copy_(1e-3 * torch.eye(32))
    return model


def _counting() -> torch.Tensor:
    """Every token id is the one before it plus 7."""
    start = torch.arange(40)[:, None] * 5
    return (start + 7 * torch.arange(planted.LENGTH)) % planted.VOCAB


def _text(ids_NT: torch.Tensor) -> Capture:
    """What is captured of a text without its states and layers."""
    return Capture(ids_NT, [], [], torch.ones(ids_NT.shape[1], dtype=torch.bool))


def test_rounding_is_no_effect_of_order() -> None:
    """Its bound was that of relative squared changes, which a loss in float32 exceeds by rounding alone."""
    ordered = torch.rand(32, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 5
    rounded = ordered + 1e-5 * torch.rand(32, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sentence, light = _judge(ordered, rounded, 4e-6, 6e-6)
    assert sentence.endswith("the model ignores order.") and light == "bad"
    sentence, light = _judge(ordered, ordered + 0.01, 0.005, 0.015)
    assert sentence.endswith("Order helps to predict it.") and light == "good"


def test_the_loss_is_that_of_the_model_with_its_output_layer() -> None:
    """Against the cross-entropy that transformers computes itself on the whole windows."""
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16}
    model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=50, bos_token_id=1, eos_token_id=1, **sizes)).eval()
    ids = torch.randint(50, (6, 12), generator=torch.Generator().manual_seed(0))
    recorded = _text(ids)
    pair = _compute_losses(Subject.of(model), recorded)
    assert pair is not None
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    for column, end in enumerate(_find_prefix_lengths(recorded)):
        theirs = torch.nn.functional.cross_entropy(logits[:, end - 1].double(), ids[:, end], reduction="none")
        torch.testing.assert_close(pair[0][:, column], theirs, atol=1e-6, rtol=1e-6)


def test_models_that_have_no_next_token() -> None:
    bare = hf.GPT2Model(hf.GPT2Config(vocab_size=planted.VOCAB, n_embd=16, n_layer=1, n_head=2, n_positions=32))
    for model, said in ((planted.uniform(), "no next token"), (bare, "without its output layer")):
        found = planted.answer("cause.loss", *planted.subject_of(model))
        assert found.light == "skip" and said in found.verdict
    subject = Subject.of(tiny("bart"), side="decoder")
    recorded = capture(subject.model, subject.forward, torch.randint(3, TINY_VOCAB, (8, 12)))
    verdict = planted.answer("cause.loss", subject, recorded).verdict
    assert verdict.startswith("It is the decoder of an encoder-decoder"), "it does write from left to right"


def test_texts_of_one_token_each_have_one_order_and_say_nothing_of_the_model() -> None:
    """Of any model it was told that it ignores order."""
    same = torch.arange(40)[:, None].repeat(1, planted.LENGTH)
    found = planted.answer("cause.loss", Subject.of(_bigram("bigram")), _text(same))
    assert found.light == "skip" and found.verdict.endswith("are all the same, so that they have only one order.")


def test_a_language_model_whose_tokens_see_no_other_is_one_all_the_same() -> None:
    """It was called no language model."""
    subject, recorded = planted.subject_of(planted.alone("decoder"))
    heads = [planted.heads_of(recorded)]
    assert "nats" in planted.answer("cause.loss", subject, recorded, head_statistics=heads).verdict
    subject, recorded = planted.subject_of(planted.alone())
    heads = [planted.heads_of(recorded)]
    assert "no next token" in planted.answer("cause.loss", subject, recorded, head_statistics=heads).verdict


def _misleading() -> torch.Tensor:
    """Texts of one token each but for the last before every prediction: the others predict it."""
    ids = (torch.arange(40)[:, None] + 20).repeat(1, planted.LENGTH)
    for end in _find_prefix_lengths(_text(ids)):
        ids[:, end - 1], ids[:, end] = ids[:, 0] + 60, ids[:, 0] + 7
    return ids


@pytest.mark.parametrize(
    ("kind", "ids", "light", "said"),
    [
        ("bigram", _counting(), "good", "Order helps to predict it."),
        ("bigram", planted.ids(40), "info", "Whether order helps is undecided."),
        ("bigram", _misleading(), "warn", "It is predicted better without their order."),
        ("bag", _counting(), "bad", "alike in any order of the tokens before it: the model ignores order."),
    ],
    ids=["the last determines it", "random tokens", "the last misleads", "all count alike"],
)
def test_what_order_does_is_told_by_the_interval(kind: str, ids: torch.Tensor, light: str, said: str) -> None:
    found = planted.answer("cause.loss", Subject.of(_bigram(kind)), _text(ids))
    assert found.light == light and found.verdict.endswith(said)
    low, high = found.interval or (0.0, 0.0)
    assert {"good": low > 0, "info": low < 0 < high, "warn": high < 0, "bad": True}[light]
    assert light != "good" or found.value > 2  # type: ignore[operator]
