"""Two words of a sentence swapped: undone by a model that ignores order, and told where it matters."""

from __future__ import annotations

import pytest
import torch

from clockhands.findings import Finding
from clockhands.inspection import Subject, inspect
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from tests.inspection.words import WORDS, make_tokenizer

TEXT = " ".join(
    WORDS[index] for index in torch.randint(0, len(WORDS), (300,), generator=torch.Generator().manual_seed(0))
)


def measure(scheme: str, *sentences: str, length: int = 12) -> Finding:
    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "d_model": 32, "num_heads": 4, "d_ff": 64, "encoder_layers": 2}
    model = Transformer(TransformerConfig(kind="encoder", encoder=PositionConfig(scheme), **sizes))
    return inspect(
        Subject.of(model, make_tokenizer()), None, [TEXT], length=length, sentences=sentences, control=False
    )["sentence.swap"]


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
    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "d_model": 32, "num_heads": 4, "d_ff": 64, "encoder_layers": 2}
    table = PositionConfig("learned", {"max_length": length})
    model = Transformer(TransformerConfig(kind="encoder", encoder=table, **sizes))
    findings = inspect(Subject.of(model, tokenizer), None, [TEXT], length=length, sentences=[sentence], control=False)
    verdict, rows = findings["sentence.swap"].verdict, findings["sentence.swap"].table.rows
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
    """It was left out without a word."""
    lines = measure("sinusoidal", "Tom bit a dog", "Tom Tom").verdict.split("\n")
    assert len(lines) == 2 and lines[0].startswith("“Tom bit a dog”: swapping ")
    assert lines[1] == "“Tom Tom”: not measured: it has no two different words."
