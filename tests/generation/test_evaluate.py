"""Evaluation against the model's own loss and hand-counted tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from clockhands.data import Pair, PairCollator, encode_pairs, open_corpus
from clockhands.errors import DataError, UsageError
from clockhands.generation import Loss, evaluate
from clockhands.models import to_language_model
from clockhands.runs import Run, open_run


def test_the_loss_is_the_models(translator: Run) -> None:
    opened = open_run(translator)
    pairs = open_corpus("roles", train=600, validation=10, test=20, adjectives=0.0).pairs("test")
    result = evaluate(opened, pairs)
    data = encode_pairs(pairs, opened.tokenizers)
    batch = PairCollator(opened.tokenizers.source.pad_token_id)([data[i] for i in range(len(data))])
    with torch.inference_mode():
        assert result.loss.mean == pytest.approx(opened.model(**batch).loss.item(), rel=1e-5)
    assert [score.name for score in result.scores] == ["BLEU", "chrF2", "exact", "loss"]
    assert sum(row[1] for row in result.by_length.rows) == len(pairs)


def test_a_language_models_loss_is_its_own_by_place(writer: Run) -> None:
    opened = open_run(writer)
    text = ["the cat sat on the mat. " * 30]
    result = evaluate(opened, text, length=33)
    ids = torch.tensor(opened.tokenizers.source(text[0], add_special_tokens=False)["input_ids"])
    windows = torch.stack([ids[start : start + 33] for start in range(0, len(ids) - 32, 32)])
    with torch.inference_mode():
        loss = opened.model(input_ids=windows, labels=windows).loss.item()
    assert result.scores[0].value == pytest.approx(loss, rel=1e-3)
    assert result.scores[1].value == pytest.approx(math.exp(result.scores[0].value))
    assert result.by_length.rows[0][2] > result.by_length.rows[-1][2], "later places have more to go by"


def test_loss_per_token_weighs_tokens_not_sentences() -> None:
    loss = Loss(np.array([1.0, 9.0]), np.array([1, 3]))
    assert loss.mean == 2.5
    low, high = loss.interval
    assert low <= 2.5 <= high


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ([], {}, "no text to evaluate on"),
        (
            [("Tom saw Anna", "Tom saw Anna")],
            {},
            "the text holds a tuple; each item must be a Pair, or a document as a",
        ),
        (["the cat sat", b"the cat sat"], {}, "the text holds a bytes; each item must be"),
        ("the cat sat", {}, "the text is a str, not a sequence of documents; put it into a list"),
        ([Pair("Tom saw Anna", "Tom saw Anna"), "the cat sat"], {}, "mixes pairs and documents"),
        (["the cat sat on the mat"], {"length": 0}, "length=0"),
        (["the cat sat on the mat"], {"stride": "x", "batch": 1e308}, "stride is 'x', but must be .*; batch is"),
        (["the cat sat on the mat"], {"buckets": 0}, "buckets=0; the table by length has at least 1 row"),
    ],
)
def test_what_cannot_be_read_is_refused(writer: Run, text: Any, options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError if options else DataError, match=message):
        evaluate(writer, text, **options)


def test_pairs_for_a_language_model_are_refused(writer: Run) -> None:
    message = r"cannot evaluate translations with .*, which is no run; give documents, each a str, instead of Pairs"
    with pytest.raises(UsageError, match=message):
        evaluate(to_language_model(writer, "evaluate continuations"), [Pair("a", "a")])
