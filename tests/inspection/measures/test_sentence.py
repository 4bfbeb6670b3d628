"""The packed numbers of a page: read back as they were, and never more than a page should carry."""

from __future__ import annotations

import base64
import struct

import pytest
import torch

from clockhands.findings import Finding, Findings
from clockhands.inspection import Subject, inspect
from clockhands.inspection.measures.measure import SENTENCES_HEADING
from clockhands.inspection.measures.sentence import _describe, make_attention_view
from clockhands.inspection.reading.sentences import SENTENCE_TERMS, Sentence, SentenceLayer
from clockhands.model import PositionConfig
from tests.inspection.words import WORDS, make_tokenizer

from ..tiny import own, tiny
from .test_measure import check_declared


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
    monkeypatch.setattr("clockhands.inspection.measures.sentence.MOST_NUMBERS", 3 * 12)
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


TEXT = " ".join(
    WORDS[index] for index in torch.randint(0, len(WORDS), (400,), generator=torch.Generator().manual_seed(0))
)
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
    assert all(sum(float(cell) for cell in row[3:]) == pytest.approx(1, abs=1e-3) for row in item.table.rows)  # type: ignore[arg-type]
    assert item.figure is not None and [panel.title for panel in item.figure.panels] == [f"“{text}”" for text in ASKED]


def test_the_view_holds_the_attention_of_every_head(found: Findings) -> None:
    """Unpacked, each row of attention adds up to one, and the masked half is zero."""
    view = found["sentence"].details["view"]
    first = view["sentences"][0]
    assert (first["text"], first["tokens"], first["left_out"]) == (ASKED[0], ["Tom", "bit", "a", "dog"], 0)
    assert first["swapped"] == "bit Tom a dog" and first["terms"] == [*SENTENCE_TERMS][:4]
    assert first["mask"] == ["1000", "1100", "1110", "1111"]
    assert [(head["layer"], head["head"]) for head in first["heads"]] == [
        (layer, h) for layer in (1, 2) for h in range(1, 5)
    ]
    for head in first["heads"]:
        numbers = torch.frombuffer(bytearray(base64.b64decode(head["numbers"])), dtype=torch.int16).reshape(6, 4, 4)
        weights = numbers[:2].double() / 32767
        assert torch.allclose(weights.sum(-1), torch.ones(2, 4, dtype=torch.float64), atol=2e-4)
        assert not bool(weights.triu(1).any())


@pytest.mark.parametrize("added", [0.0, 0.2])
def test_what_tokens_and_distances_add_together_is_told_where_they_do(added: float) -> None:
    maps = torch.zeros(1, 2, 2)
    shares = torch.tensor([0.4 - added, 0.1, 0.2, 0.3, added])
    layer = SentenceLayer(maps, None, maps[0].bool(), torch.zeros(5, 1, 2, 2), shares[None], shares, torch.zeros(1))
    sentence = Sentence("a b", [5, 6], ["a", "b"], torch.ones(2, dtype=torch.bool), "", [])
    rest = ", what tokens and distances add together 20 %" if added else ""
    assert _describe(sentence, [layer]) == (
        f"“a b”: tokens alone account for {'20' if added else '40'} % of the logits' variance, tokens with positions "
        f"30 %, positions alone 30 %{rest}; positions do most in layer 1 head 1 (30 %)."
    )


def measure(scheme: str, *sentences: str, length: int = 12) -> Finding:
    subject = Subject.of(own(scheme), make_tokenizer())
    found = inspect(subject, None, [TEXT], length=length, sentences=sentences, control=False)
    return found["sentence.swap"]


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
    model = own(PositionConfig("learned", {"max_length": length}))
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
