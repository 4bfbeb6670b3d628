"""What the logits of a sentence are made of, and what swapping two of its words changes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from clockhands.findings import Finding, Findings
from clockhands.inspection import Subject, inspect
from clockhands.inspection.measures.measure import SENTENCES_HEADING
from clockhands.inspection.measures.sentence import _describe
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.sentences import SENTENCE_TERMS, Sentence, SentenceLayer, encode_sentences
from clockhands.inspection.reading.windows import cut_windows
from clockhands.model import PositionConfig
from tests.inspection.words import WORDS, make_tokenizer

from ..planted import answer
from ..tiny import own, tiny
from .test_measure import check_declared

TEXT = " ".join(random.Random(0).choices(WORDS, k=400))
ASKED = ["Tom bit a dog", "the king and the king"]


@pytest.fixture(scope="module")
def found() -> Findings:
    return inspect(tiny("gpt2"), make_tokenizer(), [TEXT], length=16, sentences=ASKED, control=False)


def test_sentences_come_first_and_only_where_they_were_asked_about(found: Findings) -> None:
    assert [item.name for item in found][:3] == ["sentence", "sentence.swap", "text"]
    assert {item.details["group"] for item in found.items[:2]} == {SENTENCES_HEADING}
    for item in found.items[:2]:
        check_declared(item)
    ids = torch.randint(7, 97, (8, 12))
    assert "sentence" not in {item.name for item in inspect(tiny("gpt2"), texts=ids, control=False)}


def test_the_value_is_the_share_of_position_and_the_verdict_says_it_for_each_sentence(found: Findings) -> None:
    item = found["sentence"]
    assert item.verdict.startswith("“Tom bit a dog”: tokens alone account for ")
    assert "\n“the king and the king”: " in item.verdict and "In other texts, cut to the same length" in item.verdict
    (reference,) = item.references
    assert reference.name == "other texts" and reference.interval is not None
    assert reference.interval[0] <= reference.value <= reference.interval[1]
    assert item.table.columns == ("sentence", "layer", "head", *SENTENCE_TERMS) and len(item.table.rows) == 2 * 2 * 4
    assert [row[1:3] for row in item.table.rows[:8]] == [(layer, head) for layer in (1, 2) for head in (1, 2, 3, 4)]
    assert all(sum(float(cell) for cell in row[3:]) == pytest.approx(1, abs=1e-3) for row in item.table.rows)  # type: ignore[arg-type]
    assert item.figure is not None and [panel.title for panel in item.figure.panels] == [f"“{text}”" for text in ASKED]


@pytest.mark.parametrize("added", [0.0, 0.2])
def test_what_tokens_and_distances_add_together_is_told_where_they_do(added: float) -> None:
    maps = torch.zeros(1, 2, 2)
    shares = torch.tensor([0.4 - added, 0.1, 0.2, 0.3, added])
    layer = SentenceLayer(maps, shares[None], shares, torch.zeros(1))
    sentence = Sentence("a b", [5, 6], ["a", "b"], torch.ones(2, dtype=torch.bool))
    rest = ", what tokens and distances add together 20 %" if added else ""
    assert _describe(sentence, [layer]) == (
        f"“a b”: tokens alone account for {'20' if added else '40'} % of the logits' variance, tokens with positions "
        f"30 %, positions alone 30 %{rest}; positions do most in layer 1 head 1 (30 %)."
    )


def measure(position: PositionConfig | str, *sentences: str, length: int = 12, tokenizer: Any = None) -> Finding:
    """What swapping words of sentences changes in a model with this position, beside windows of text."""
    subject = Subject.of(own(position), tokenizer or make_tokenizer())
    windows = cut_windows(subject.tokenizer, [TEXT], length=length, count=96)
    recorded = Capture(windows.ids_NT, [], [], windows.ordinary_T)
    return answer("sentence.swap", subject, recorded, sentences=encode_sentences(subject, sentences))


def test_a_model_that_ignores_order_is_told_from_one_that_does_not() -> None:
    blind, seeing = measure("none", "Tom bit a dog"), measure("sinusoidal", "Tom bit a dog")
    assert blind.value == pytest.approx(0.0, abs=1e-9) and blind.light == "bad"
    assert blind.verdict == "“Tom bit a dog”: swapping two words does not change the mean of the output."
    assert isinstance(seeing.value, float) and seeing.value > 1e-4 and seeing.light == "good"
    assert seeing.verdict.startswith("“Tom bit a dog”: swapping “") and "the most of all pairs" in seeing.verdict
    assert "Not measured" not in blind.verdict + seeing.verdict
    assert len(seeing.table.rows) == 6 and max(row[2] for row in seeing.table.rows) == seeing.value
    assert ("Tom bit a dog", "dog bit a Tom") in [row[:2] for row in seeing.table.rows]


def test_equal_words_are_no_pair() -> None:
    found = measure("sinusoidal", "Tom and Tom")
    assert {row[1] for row in found.table.rows} == {"and Tom Tom", "Tom Tom and"}
    assert measure("sinusoidal", "Tom Tom").light == "skip"


def test_a_swap_that_makes_a_text_too_long_is_left_out_and_not_called_no_change() -> None:
    """The tokenizer writes "Tom bit" as one token: parted, the text has one token more than the table has rows."""
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["Tom bit"])
    sentence = "Tom bit a dog saw Anna the"
    length = len(tokenizer(sentence)["input_ids"])
    assert length == 6
    found = measure(PositionConfig("learned", {"max_length": length}), sentence, length=length, tokenizer=tokenizer)
    verdict, rows = found.verdict, found.table.rows
    assert "the most of the measured pairs" in verdict
    assert verdict.endswith("Not measured: 11 swaps that make it longer than the model reads.")
    assert len(rows) == 10, "the pairs of the other five words"
    assert all(row[1].startswith("Tom bit ") and row[2] > 0 for row in rows)


def test_words_after_the_first_twelve_are_not_said_to_be_compared() -> None:
    """Of 13 words "all pairs" were told, and those of the last one had not been tried."""
    for count in (12, 13):
        verdict = measure("sinusoidal", " ".join(WORDS[:count]), length=24).verdict
        assert ("the most of all pairs" in verdict) == (count == 12)
        assert verdict.endswith("Words after the first 12 were left where they are.") == (count == 13)


def test_a_sentence_that_cannot_be_measured_is_told_beside_one_that_can() -> None:
    lines = measure("sinusoidal", "Tom bit a dog", "Tom Tom").verdict.split("\n")
    assert len(lines) == 2 and lines[0].startswith("“Tom bit a dog”: swapping ")
    assert lines[1] == "“Tom Tom”: not measured: it has no two different words."
