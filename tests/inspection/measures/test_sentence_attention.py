"""The finding of sentences: only where some were asked about, its numbers those of the terms, its view complete."""

from __future__ import annotations

import base64

import pytest
import torch

from clockhands.findings import Findings
from clockhands.inspection import inspect
from clockhands.inspection.measures.measure import SENTENCES_HEADING
from clockhands.inspection.measures.sentence_attention import _describe
from clockhands.inspection.reading.sentence_split import SENTENCE_TERMS, SentenceLayer
from clockhands.inspection.reading.sentences import Sentence
from tests.inspection.words import WORDS, make_tokenizer

from ..tiny import tiny
from .test_measure import check_declared

ASKED = ["Tom bit a dog", "the king and the king"]


@pytest.fixture(scope="module")
def found() -> Findings:
    text = " ".join(
        WORDS[index] for index in torch.randint(0, len(WORDS), (400,), generator=torch.Generator().manual_seed(0))
    )
    return inspect(tiny("gpt2"), make_tokenizer(), [text], length=16, sentences=ASKED, control=False)


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
