"""The packed numbers of a page: read back as they were, and never more than a page should carry."""

from __future__ import annotations

import base64
import struct

import pytest
import torch

from clockhands.inspection.measures import sentence_view
from clockhands.inspection.measures.sentence_view import make_attention_view
from clockhands.inspection.reading.sentence_split import SENTENCE_TERMS, SentenceLayer
from clockhands.inspection.reading.sentences import Sentence


def make_layer(heads: int, size: int, positional: list[float]) -> SentenceLayer:
    weights = torch.eye(size).expand(heads, size, size)
    terms = torch.zeros(len(SENTENCE_TERMS), heads, size, size)
    terms[0], terms[3] = 2.0, -4.0
    shares = torch.zeros(heads, len(SENTENCE_TERMS))
    shares[:, 3] = torch.tensor(positional)
    return SentenceLayer(
        weights, None, torch.ones(size, size, dtype=torch.bool), terms, shares, shares[0], torch.ones(2)
    )


def test_terms_that_are_zero_are_left_out_and_the_others_have_their_scale() -> None:
    sentence = Sentence("a b", [1, 2], ["a", "b"], torch.ones(2, dtype=torch.bool), "b a", [])
    (packed,) = make_attention_view([sentence], [[make_layer(1, 2, [0.5])]])["sentences"]
    assert packed["terms"] == ["token alone", "position alone"] and packed["swapped"] == ""
    (head,) = packed["heads"]
    numbers = struct.unpack("<12h", base64.b64decode(head["numbers"]))
    assert numbers[:4] == (32767, 0, 0, 32767)
    assert [round(number * head["scale"], 3) for number in numbers[4:]] == [2.0] * 4 + [-4.0] * 4


def test_of_many_heads_those_by_position_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = Sentence("a b", [1, 2], ["a", "b"], torch.ones(2, dtype=torch.bool), "", [])
    layers = [make_layer(3, 2, [0.1, 0.9, 0.2]), make_layer(3, 2, [0.8, 0.0, 0.7])]
    monkeypatch.setattr(sentence_view, "MOST_NUMBERS", 3 * 12)
    (packed,) = make_attention_view([sentence], [layers])["sentences"]
    assert packed["left_out"] == 3
    assert [(head["layer"], head["head"]) for head in packed["heads"]] == [(1, 2), (2, 1), (2, 3)]


def test_a_layer_with_another_mask_has_its_own() -> None:
    """The mask of the first layer stood for all: in a global layer after a window, allowed pairs were called masked."""
    sentence = Sentence("a b", [1, 2], ["a", "b"], torch.ones(2, dtype=torch.bool), "", [])
    window, everywhere = make_layer(1, 2, [0.1]), make_layer(1, 2, [0.2])
    window.mask_ST[1, 0] = False
    (packed,) = make_attention_view([sentence], [[window, everywhere, window]])["sentences"]
    assert packed["mask"] == ["11", "01"]
    assert [head.get("mask") for head in packed["heads"]] == [None, ["11", "11"], None]
