"""What the logits of a sentence are made of, and what swapping two of its words changes."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from clockhands.data import open_corpus, train_tokenizer
from clockhands.findings import Finding, Findings
from clockhands.inspection import Subject, inspect
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.measure import SENTENCES_HEADING
from clockhands.inspection.measures.sentence import _describe, compute_mean_states
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.sentences import (
    SENTENCE_TERMS,
    Sentence,
    SentenceLayer,
    encode_sentences,
    make_english_swaps,
)
from clockhands.inspection.reading.windows import cut_windows
from clockhands.model import PositionConfig
from clockhands.pretrained import encode_bare, find_special_tokens
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


@pytest.fixture(scope="module")
def german() -> Any:
    """A tokenizer that has seen German numbers alone."""
    numbers = open_corpus("numbers", source="de", train=400).sources("train")
    return train_tokenizer(numbers, kind="word", task="language modelling")


NAMES = ("Annabella", "Bernhardine", "Christiane")
LINES = "\n".join(f"the small dog saw {name} today" for name in NAMES * 3)


def _train(*text: str) -> Any:
    """A tokenizer of the words of a text."""
    return train_tokenizer(text, kind="word", task="language modelling")


def _swapped(subject: Subject, texts: list[str] | None) -> Finding:
    return MEASURES["cause.swap"].run(replace(Reading.without_text(subject), texts=texts))


def _subject(tokenizer: Any, position: PositionConfig | str = "sinusoidal", rows: int | None = None) -> Subject:
    """A model with as many tokens as its tokenizer has, unless other ``rows`` are asked for."""
    return Subject.of(own(position, vocab_size=rows or len(tokenizer)), tokenizer)


def test_english_means_nothing_to_a_german_tokenizer(german: Any) -> None:
    found = _swapped(_subject(german), None)
    assert found.light == "skip"
    assert "does not know the words of the built-in English sentences" in found.verdict


def test_without_a_tokenizer() -> None:
    assert _swapped(Subject.of(own()), None).verdict == "Without a tokenizer there are no sentences to swap words in."


def test_the_longest_words_of_a_given_text_change_places() -> None:
    text = "\n".join(f"der kleine Hund sah {name} heute" for name in NAMES * 3)
    found = _swapped(_subject(_train(text)), [text])
    assert found.table.rows[0][:2] == ("der kleine Hund sah Annabella heute", "der Annabella Hund sah kleine heute")


def test_a_long_document_is_taken_line_by_line() -> None:
    lines = [f"the small dog saw {name} today" for name in (*NAMES, "Dorothea")]
    document = "\n".join(["ACT I", *lines, *(line.replace("saw", "heard") for line in lines)])
    subject = _subject(_train(document))
    subject.training_texts = [document]
    assert [row[0] for row in _swapped(subject, None).table.rows][:4] == lines, "short lines come last"


def test_words_that_are_all_unknown_cannot_be_told_apart(german: Any) -> None:
    assert _swapped(_subject(german), [LINES]).light == "skip"


def test_special_tokens_are_no_part_of_the_mean() -> None:
    text = ["the small dog saw Anna today"]
    subject = _subject(train_tokenizer(text, kind="word", task="translation"))
    before, after = find_special_tokens(subject.tokenizer, subject.start_token)
    ids = [*before, *encode_bare(subject.tokenizer, text[0]), *after]
    assert len(before) + len(after) > 0
    states = subject.forward(torch.tensor([ids]))[-1][0]
    inner = torch.stack([states[t] for t in range(len(before), len(ids) - len(after))])
    torch.testing.assert_close(compute_mean_states(subject, [(ids, None)])[0], inner.mean(0))
    assert not torch.allclose(compute_mean_states(subject, [(ids, None)])[0], states.mean(0), atol=1e-3)


def test_a_text_without_sentences(german: Any) -> None:
    found = _swapped(_subject(german), ["ein"])
    assert found.light == "skip" and found.verdict == (
        "At least 6 lines of at most 20 words, among the first 4,096 of the text, are needed in which two words can be "
        "swapped and that are "
        "not longer than the model reads; there are 0."
    )


def test_a_run_is_asked_in_its_own_language_and_a_model_that_sees_no_order_gives_nothing() -> None:
    """Numbers are single words, so that two of their pieces change places."""
    numbers = open_corpus("numbers", source="de", train=400).sources("train")
    tokenizer = train_tokenizer(numbers, kind="bpe", vocabulary=300, task="language modelling")
    values = {}
    for scheme in ("sinusoidal", "none"):
        subject = _subject(tokenizer, scheme)
        subject.training_texts = numbers
        found = _swapped(subject, None)
        values[scheme] = found.value, found.light
        assert ("sentences of its training text" in found.verdict) == (scheme == "sinusoidal")
        assert {row[0] for row in found.table.rows} <= set(numbers)
        assert all(row[0] != row[1] for row in found.table.rows)
    assert values["sinusoidal"][0] > 1e-3 and values["sinusoidal"][1] == "good"
    assert values["none"] == (pytest.approx(0.0, abs=1e-9), "bad")


def test_a_tokenizer_that_knows_all_words_is_not_blamed_for_a_model_that_is_too_short() -> None:
    """Built-in sentences have 14 bytes and more, the model reads 8, and a tokenizer of bytes has no unknown token."""
    bytes_alone = Tokenizer(models.BPE({letter: i for i, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_alone)
    assert tokenizer.unk_token_id is None
    short = _subject(tokenizer, PositionConfig("learned", {"max_length": 8}))
    assert _swapped(short, None).verdict.startswith("At least 6 built-in English sentences are")


def test_a_tokenizer_that_drops_english_letters_knows_no_english_words() -> None:
    no_latin = Tokenizer(models.WordLevel({"[UNK]": 0, "κόσμος": 1}, unk_token="[UNK]"))
    no_latin.normalizer = normalizers.Replace(Regex("[A-Za-z. ]"), "")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=no_latin, unk_token="[UNK]")
    assert encode_bare(tokenizer, "Tom bit a dog.") == []
    found = _swapped(_subject(tokenizer), None)
    assert found.light == "skip"
    assert "does not know the words of the built-in English sentences" in found.verdict


def test_sentences_longer_than_the_model_reads_are_left_out() -> None:
    short = [f"the king saw dog {word}" for word in ("one", "two", "three", "four", "five", "six", "seven", "eight")]
    text = ["one two three four five six seven eight nine", *short]
    found = _swapped(_subject(_train(*text), PositionConfig("learned", {"max_length": 8})), text)
    assert found.light != "skip", found.verdict
    assert [row[0] for row in found.table.rows] == short


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["the small dog saw Anna", "the small cat saw Tom"] * 4, "swapping two words changes"),
        (["dog saw Anna", "cat saw Tom"] * 4, "swapping the first and the last token changes"),
        (
            ["the small dog saw Anna"] * 4 + ["cat saw Tom"] * 3,
            "swapping two words (in 3 of them the first and the last",
        ),
    ],
)
def test_tokens_that_are_swapped_are_not_called_words(lines: list[str], said: str) -> None:
    assert said in _swapped(_subject(_train("the small dog saw Anna cat Tom")), ["\n".join(lines)]).verdict


def test_a_tokenizer_of_another_model_is_named() -> None:
    """Its ids are beyond the rows of tokens; of a tokenizer that fits, sentences are compared."""
    tokenizer = _train(LINES)
    for rows in (5, len(tokenizer)):
        verdict = _swapped(_subject(tokenizer, rows=rows), [LINES]).verdict
        assert verdict.startswith("Its tokenizer gives the id ") == (rows == 5)
        assert ("sentences of the given text, swapping" in verdict) == (rows > 5)


def test_the_method_shows_a_sentence_that_is_made(german: Any) -> None:
    """It showed 'Tom saw Anna', and Tom is paired with a dog."""
    measure = MEASURES["cause.swap"]
    shown = re.findall(r"'(.+?)'", measure.method)
    made = [swap.text.rstrip(".") for swap in make_english_swaps(_subject(german))]
    assert len(shown) == 1 and shown[0] in made
