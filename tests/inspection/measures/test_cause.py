"""Whether order matters to what comes out, told of models in which it does and of models in which it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.findings import Finding
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.mean_order import _shift_text
from clockhands.inspection.measures.next_token import _ends, token_losses
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.interventions import OTHERS, PERMUTED, Effect, Interventions
from clockhands.inspection.reading.logit_split import split
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.subject import Subject
from clockhands.model import Transformer

from .. import planted
from ..tiny import tiny


def _found(model: Any) -> tuple[dict[str, Finding], Interventions]:
    """What ``inspect`` finds by intervention, and the interventions themselves."""
    subject, recorded = planted.subject_of(model)
    splits = [split(layer, recorded.ordinary_T) for layer in recorded.layers]
    reading = Reading(subject, recorded, splits)
    for name in ("kernel", "cause.tokens", "cause"):
        reading.findings[name] = MEASURES[name].run(reading)
    return reading.findings, reading.interventions


def test_a_head_that_copies_the_previous_token_changes_every_state_and_hardly_their_mean() -> None:
    found, changes = _found(planted.copying())
    assert found["cause.tokens"].value > 0.9  # type: ignore[operator]
    assert changes[OTHERS].tokens > 0.9, "where a token itself stays in its place too"
    assert found["cause"].value < 0.2, "averaged over the text, nearly the same words are copied"  # type: ignore[operator]
    assert "the state of each token changes by 9" in found["cause.tokens"].verdict
    assert found["cause.tokens"].references[1].name == "two random tokens"


def test_a_bag_of_words_has_no_order_in_any_of_the_measures() -> None:
    found, changes = _found(planted.uniform())
    assert found["cause.tokens"].value == pytest.approx(0.0, abs=1e-9)
    assert found["cause"].value == pytest.approx(0.0, abs=1e-9)
    assert changes[OTHERS].tokens == pytest.approx(0.0, abs=1e-9)
    assert found["cause.tokens"].verdict == "No token's state changes when the tokens are permuted: order is not seen."
    assert found["cause"].verdict.startswith("Permuting the tokens does not change the mean of the output.")
    assert found["cause"].light == found["cause.tokens"].light == "bad"


@pytest.mark.parametrize(
    ("kind", "scheme", "still", "expected"),
    [
        ("encoder", "rope", False, "Shifting all positions, by up to 64, changes nothing: only distances matter."),
        ("encoder", "rope", True, "Shifting all positions, by up to 64, changes nothing."),
        ("decoder", "rope", True, "Shifting all positions, by up to 64, changes nothing."),
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
    found, changes = _found(model)
    assert found["cause"].verdict.endswith(expected)
    assert changes.order_matters == (kind == "decoder" or (not still and scheme != "none"))


@pytest.mark.parametrize(
    ("name", "relative"), [("roformer", False), ("bert", False), ("bloom", True), ("t5", True), ("deberta", True)]
)
def test_that_there_is_nothing_to_shift_is_said_of_relative_schemes_alone(name: str, relative: bool) -> None:
    """RoFormer turns by the place, which cannot be shifted from outside: it was said to have no absolute positions."""
    subject = Subject.of(tiny(name))
    assert subject.relative_only == relative
    nothing = Interventions((Effect(PERMUTED, torch.ones(2), torch.ones(2)), Effect(OTHERS, torch.ones(2), None)))
    said = _shift_text(subject, nothing, by_distance=True)
    assert ("There are no absolute positions to shift: only distances matter." in said) == relative
    assert ("Its positions cannot be shifted from outside" in said) == (not relative)


@pytest.mark.parametrize(("scheme", "relative"), [("alibi", True), ("none", True), ("learned", False), ("tupe", False)])
def test_own_schemes_declare_whether_there_is_something_to_shift(scheme: str, relative: bool) -> None:
    assert Subject.of(planted.uniform("encoder", scheme)).relative_only == relative


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        ({1: 0.0, 4: 0.0}, "Shifting all positions, by up to 4, changes nothing"),
        ({1: 0.0, 4: 0.3}, "Shifting all positions by 4 changes it by 30 %."),
        ({1: 0.2, 4: 0.3}, "Shifting all positions by one changes it by 20 %."),
    ],
)
def test_every_shift_that_was_tried_is_judged(effects: dict[int, float], expected: str) -> None:
    """Only the shift by one was: a table whose first rows are equal was told to have no absolute positions."""
    shifts = tuple(Effect(f"shifted by {k}", torch.full((2,), x), torch.full((2,), x)) for k, x in effects.items())
    order = (Effect(PERMUTED, torch.ones(2), torch.ones(2)), Effect(OTHERS, torch.ones(2), None))
    said = _shift_text(Subject.of(planted.uniform()), Interventions(shifts + order), by_distance=False)
    assert said.strip().startswith(expected)


def test_a_shift_that_matters_is_told_with_its_size() -> None:
    model = planted.uniform("encoder", "learned", max_length=64)
    found, _ = _found(model)
    assert "Shifting all positions by one changes it by" in found["cause"].verdict
    assert "Without its position rows the mean of the output changes by" in found["cause"].verdict


def test_one_output_for_every_text_gives_no_distance_to_measure_by() -> None:
    model = planted.uniform()
    with torch.no_grad():
        model.encoder.input.tokens.weight.fill_(1.0)  # type: ignore[union-attr]
    found, _ = _found(model)
    assert found["cause"].light == found["cause.tokens"].light == "skip"


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
    """Every token is the one before it and 7."""
    start = torch.arange(40)[:, None] * 5
    return (start + 7 * torch.arange(planted.LENGTH)) % planted.VOCAB


def _loss(model: Transformer, ids: torch.Tensor) -> Finding:
    subject = Subject.of(model)
    recorded = Capture(ids, [], [], torch.ones(ids.shape[1], dtype=torch.bool))
    return planted.answer("cause.loss", subject, recorded)


def test_the_next_token_costs_more_where_the_last_one_told_it() -> None:
    found = _loss(_bigram("bigram"), _counting())
    assert found.light == "good" and found.value > 2  # type: ignore[operator]
    assert found.verdict.endswith("Order helps to predict it.")
    assert found.interval is not None and found.interval[0] > 0


def test_the_next_token_costs_the_same_where_all_tokens_before_it_count_alike() -> None:
    found = _loss(_bigram("bag"), _counting())
    assert found.verdict == "The next token is predicted alike in any order of the tokens before it: order is not used."
    assert found.light == "bad"


def test_where_order_tells_nothing_of_the_next_token_it_stays_undecided() -> None:
    """Random tokens: what order changes in the prediction is for the better as often as for the worse."""
    found = _loss(_bigram("bigram"), planted.ids(40))
    assert found.verdict.endswith("Whether order helps is undecided.")
    assert found.interval is not None and found.interval[0] < 0 < found.interval[1]


def test_the_loss_is_that_of_the_model_with_its_output_layer() -> None:
    """Against the cross-entropy that transformers computes itself on the whole windows."""
    torch.manual_seed(0)
    config = hf.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=1
    )
    model = hf.GPT2LMHeadModel(config).eval()
    ids = torch.randint(50, (6, 12), generator=torch.Generator().manual_seed(0))
    subject = Subject.of(model)
    recorded = Capture(ids, [], [], torch.ones(12, dtype=torch.bool))
    pair = token_losses(subject, recorded)
    assert pair is not None
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    for column, end in enumerate(_ends(recorded)):
        theirs = torch.nn.functional.cross_entropy(logits[:, end - 1].double(), ids[:, end], reduction="none")
        torch.testing.assert_close(pair[0][:, column], theirs, atol=1e-6, rtol=1e-6)


def test_models_that_have_no_next_token() -> None:
    subject, recorded = planted.subject_of(planted.uniform())
    found = planted.answer("cause.loss", subject, recorded)
    assert found.light == "skip" and "no next token" in found.verdict
    bare = hf.GPT2Model(hf.GPT2Config(vocab_size=planted.VOCAB, n_embd=16, n_layer=1, n_head=2, n_positions=32))
    subject, recorded = planted.subject_of(bare)
    found = planted.answer("cause.loss", subject, recorded)
    assert found.light == "skip" and "without its output layer" in found.verdict
