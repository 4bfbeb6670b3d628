"""The four terms of a sentence add up to its logits, and each is what its name says."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.reading.attention_hooks import ComputedAttention, listen
from clockhands.inspection.reading.logit_split import centre_logits
from clockhands.inspection.reading.sentence_split import SENTENCE_TERMS, split_sentence
from clockhands.inspection.reading.sentences import encode_sentences
from clockhands.inspection.reading.windows import Windows
from clockhands.models.subject import Subject
from tests.inspection.words import WORDS, make_tokenizer

from ..tiny import tiny

WINDOWS = Windows(
    torch.randint(7, 7 + len(WORDS), (12, 10), generator=torch.Generator().manual_seed(0)),
    torch.ones(10, dtype=torch.bool),
)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5", "deberta-v2", "bloom"])
def test_terms_add_up_to_the_logits_of_the_sentence_read_alone(name: str) -> None:
    """The independent truth: the model run on the sentence and nothing else, its logits caught on the way."""
    subject = Subject.of(tiny(name), make_tokenizer())
    (sentence,) = encode_sentences(subject, ["Tom bit a dog and the king"])
    layers = split_sentence(subject, sentence, WINDOWS)
    calls: list[ComputedAttention] = []
    with torch.no_grad(), listen(subject.model, calls.append):
        subject.forward(torch.tensor([sentence.ids]))
    assert len(layers) == len(calls) == 2
    for layer, call in zip(layers, calls, strict=True):
        expected = centre_logits(call.logits_BHST, call.mask_BHST)[0]
        torch.testing.assert_close(layer.terms_tHST.sum(0), expected, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(layer.weights_HST, call.weights_BHST[0], atol=1e-5, rtol=1e-4)
        assert torch.allclose(layer.shares_Ht.sum(-1), torch.ones(4, dtype=torch.float64), atol=1e-4)
        assert bool(layer.terms_tHST[-1].abs().max() > 1e-5) == (name == "deberta-v2")


def test_a_model_without_positions_has_words_only_and_one_with_nothing_but_distance_has_both() -> None:
    """Without position rows, all that is left by position is what the other texts' means happen to be."""
    model = tiny("gpt2")
    with torch.no_grad():
        model.wpe.weight.zero_()
        words_only = split_sentence(Subject.of(model, make_tokenizer()), *_ask(model))[0].pooled_t
        model.wte.weight.zero_()
        model.wpe.weight.normal_(0, 1.0)
        positions_only = split_sentence(Subject.of(model, make_tokenizer()), *_ask(model))[0].pooled_t
    names = [*SENTENCE_TERMS]
    assert float(positions_only[names.index("position alone")]) == pytest.approx(1.0, abs=1e-6)
    assert float(words_only[names.index("token alone")]) > 0.4
    assert float(words_only[names.index("position alone")]) < 0.2


def _ask(model: torch.nn.Module):
    return encode_sentences(Subject.of(model, make_tokenizer()), ["Tom bit a dog"])[0], WINDOWS
