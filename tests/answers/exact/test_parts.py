"""What each part of a score depends on, in the two sentences of the same words, and what can be learned from it."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from exact.parts import PARTS, TWINS, Reader, draw, encode, measure_right, train_reader

from clockhands.model import PositionConfig, TokenBatch, Transformer, TransformerConfig

WORD, WORD_POSITION, POSITION_WORD, POSITION = PARTS
TOM_BIT, DOG_BIT = [0, 1, 2, 3], [3, 2, 0, 1]
"""The places of Tom, bit, a and dog in each sentence."""


def score_twins() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    with torch.no_grad():
        return {part: scores_NT[:, :4] for part, scores_NT in Reader(PARTS).score(encode(TWINS)).items()}


def test_what_a_part_depends_on() -> None:
    terms = score_twins()
    by_word = {part: (scores[0, TOM_BIT], scores[1, DOG_BIT]) for part, scores in terms.items()}
    assert torch.allclose(*by_word[WORD], atol=1e-6) and not torch.allclose(*by_word[POSITION], atol=1e-3)
    assert torch.allclose(terms[WORD_POSITION][0], terms[WORD_POSITION][1], atol=1e-6)  # the verb is the same
    assert not torch.allclose(*by_word[POSITION_WORD], atol=1e-3)  # and stands at another place
    assert not torch.allclose(terms[WORD][0], terms[WORD][1], atol=1e-3)


def test_the_parts_add_up_to_the_score_of_the_sums() -> None:
    torch.manual_seed(0)
    reader, terms = Reader(PARTS), score_twins()
    twins = encode(TWINS)
    with torch.no_grad():
        sums = reader.words(twins.ids_NT) + reader.rows_PD[:16]
        wanted = torch.einsum("nd,ntd->nt", reader.query(sums[torch.arange(2), twins.verb_N]), reader.key(sums)) / 8
    assert torch.allclose(sum(terms.values(), torch.zeros(2, 4)), wanted[:, :4], atol=1e-5)


def test_words_alone_say_the_same_of_both_sentences() -> None:
    """Whatever the weights are: swapped sentences get one answer, and at most one of two is right."""
    torch.manual_seed(1)
    reader = Reader([WORD])
    with torch.no_grad():
        logits_NV = reader(draw(200, "test", moved=True)).unflatten(0, (100, 2))
    assert torch.allclose(logits_NV[:, 0], logits_NV[:, 1], atol=1e-5)
    assert measure_right(reader, count=400) <= 50


@pytest.mark.parametrize(("part", "least", "most"), [(POSITION, 90, 100), (WORD, 0, 50)])
def test_positions_alone_learn_who_did_it_and_words_alone_do_not(part: str, least: float, most: float) -> None:
    right = measure_right(train_reader([part], seed=1, steps=100, count=1000), count=400)
    assert least <= right <= most


def test_a_translator_of_all_four_parts_is_the_translator() -> None:
    """The script takes the scores of an encoder apart: all parts give the states of the model itself."""
    measure = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "tools" / "answers" / "parts.py"))
    torch.manual_seed(0)
    config = TransformerConfig(
        kind="encoder", vocab_size=20, encoder_layers=1, d_model=32, num_heads=4, d_ff=32, norm="post",
        encoder=PositionConfig(scheme="sinusoidal"),
    )  # fmt: skip
    model = Transformer(config).eval()
    run = SimpleNamespace(model=SimpleNamespace(eval=lambda: SimpleNamespace(transformer=model)))
    batch = TokenBatch(torch.tensor([[4, 5, 6, 7], [4, 5, 6, 0]]), torch.tensor([[True] * 4, [True] * 3 + [False]]))

    def read(*parts: str) -> torch.Tensor:
        with torch.no_grad(), measure["keep_parts"](run, parts):
            return model.encode(batch).states_BTD

    with torch.no_grad():
        plain = model.encode(batch).states_BTD
    assert torch.allclose(read(*PARTS)[0], plain[0], atol=1e-5) and torch.allclose(
        read(*PARTS)[1, :3], plain[1, :3], atol=1e-5
    )
    assert not torch.allclose(read(WORD)[0], plain[0], atol=1e-3)
    with torch.no_grad():
        assert torch.equal(model.encode(batch).states_BTD, plain)


def test_verdicts_of_one_family_hold_together() -> None:
    """Mean 3, standard error 1: beyond 2.776 for one verdict of five seeds, within 5.598 for ten (Student's t)."""
    judge = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "tools" / "answers" / "parts.py"))["judge"]
    values = [3 + 5**0.5 * value for value in (-1.2649111, -0.6324555, 0.0, 0.6324555, 1.2649111)]
    assert [judge(values, 0.05), judge([-value for value in values], 0.05)] == ["more", "less"]
    assert judge(values, 0.05 / 10) == "undecided"
    assert judge([3 * value for value in values], 0.05 / 10) == "undecided", "a scale of its own changes nothing"
    assert judge([value + 3 for value in values], 0.05 / 10) == "more"
