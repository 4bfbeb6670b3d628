"""The engine of transformers writes what a plain loop over the whole text writes, and scores it as the model does."""

from __future__ import annotations

import pytest
import torch

from clockhands.errors import UsageError
from clockhands.generation import engines as engine_module
from clockhands.generation.engines import TransformersEngine
from clockhands.model.huggingface import ClockhandsForSeq2SeqLM
from clockhands.schemes import CATALOGUE
from tests.generation.engines.writers import END, LONGEST, OPTIONS, START, side_of_reading, sources, writer


@torch.no_grad()
def write_by_hand(model: ClockhandsForSeq2SeqLM, ids_BT: torch.Tensor, mask_BT: torch.Tensor) -> list[list[int]]:
    """The likeliest token, one after another, each from the whole text before it; one source at a time."""
    texts = []
    for ids_T, mask_T in zip(ids_BT, mask_BT, strict=True):
        text = [START]
        while len(text) <= LONGEST and text[-1] != END:
            read = torch.tensor([text])
            logits = model(ids_T[None], mask_T[None], decoder_input_ids=read, use_cache=False).logits
            text.append(int(logits[0, -1].argmax()))
        texts.append(text[1:])
    return texts


@torch.no_grad()
def log_probability(model: ClockhandsForSeq2SeqLM, ids_T: torch.Tensor, mask_T: torch.Tensor, text: list[int]) -> float:
    loss = model(ids_T[None], mask_T[None], labels=torch.tensor([text])).loss
    return -float(loss) * len(text)


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_greedy_texts_of_every_scheme_are_those_of_a_plain_loop(name: str) -> None:
    reading = side_of_reading(name)
    model, (ids_BT, mask_BT) = writer(OPTIONS.get(name, name), encoder=OPTIONS.get(reading, reading)), sources()
    written = TransformersEngine(model).generate(ids_BT, mask_BT, LONGEST)
    assert [text.tokens for text in written] == write_by_hand(model, ids_BT, mask_BT)
    for row, text in enumerate(written):
        expected = log_probability(model, ids_BT[row], mask_BT[row], text.tokens)
        assert text.log_probability == pytest.approx(expected, abs=2e-4)


def test_the_texts_compared_are_worth_comparing() -> None:
    model, (ids_BT, mask_BT) = writer(), sources()
    texts = write_by_hand(model, ids_BT, mask_BT)
    assert len({token for text in texts for token in text}) >= 8
    assert len({len(text) for text in texts}) > 2


@pytest.mark.parametrize("penalty", [1.0, 0.0, 3.0])
def test_a_beam_finds_texts_that_score_at_least_as_much(penalty: float) -> None:
    model, (ids_BT, mask_BT) = writer(), sources()
    engine = TransformersEngine(model)
    greedy = engine.generate(ids_BT, mask_BT, LONGEST)
    beams = engine.generate(ids_BT, mask_BT, LONGEST, 4, penalty)
    for row, (one, other) in enumerate(zip(greedy, beams, strict=True)):
        expected = log_probability(model, ids_BT[row], mask_BT[row], other.tokens)
        assert other.log_probability == pytest.approx(expected, abs=2e-4)
        best, first = (text.log_probability / len(text.tokens) ** penalty for text in (other, one))
        assert best >= first - 1e-4


def test_a_text_without_end_stops_at_the_longest() -> None:
    model, (ids_BT, mask_BT) = writer(), sources()
    model.transformer.output.bias.data[END] = -100.0
    written = TransformersEngine(model).generate(ids_BT, mask_BT, 4)
    assert [len(text.tokens) for text in written] == [4] * len(ids_BT)


def test_scores_do_not_depend_on_how_many_logits_exist_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (ids_BT, mask_BT) = writer(), sources()
    whole = TransformersEngine(model).generate(ids_BT, mask_BT, LONGEST)
    monkeypatch.setattr(engine_module, "LOGITS_AT_ONCE", 1)
    parts = TransformersEngine(model).generate(ids_BT, mask_BT, LONGEST)
    assert [text.tokens for text in parts] == [text.tokens for text in whole]
    scores = [text.log_probability for text in whole]
    assert [text.log_probability for text in parts] == pytest.approx(scores, abs=1e-5)


def test_what_the_model_s_own_generation_configuration_says_changes_nothing() -> None:
    model, (ids_BT, mask_BT) = writer(), sources()
    plain = TransformersEngine(model).generate(ids_BT, mask_BT, LONGEST)
    model.generation_config.do_sample, model.generation_config.temperature = True, 5.0
    assert TransformersEngine(model).generate(ids_BT, mask_BT, LONGEST) == plain


def test_the_compute_type_is_that_of_the_weights() -> None:
    assert TransformersEngine(writer()).compute_type == "float32"
    with pytest.raises(UsageError, match="is 'bfloat16', but the engine transformers computes in"):
        TransformersEngine(writer(), "bfloat16")
