"""Tokenizers: they write back what they read, are saved for AutoTokenizer, and refuse what a text does not allow."""

from __future__ import annotations

import os
import random
import re
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clockhands.data import (
    Corpus,
    Pair,
    Tokenizers,
    encode_stream,
    encode_texts,
    open_corpus,
    open_tokenizer,
    train_tokenizer,
    train_tokenizers,
)
from clockhands.errors import DataError, UsageError

KINDS = ("bpe", "unigram", "word", "character")
TEXTS = [
    "Der Hund (alt, grau) beißt Tom. Tom beißt den Hund nicht!",
    "the dog bit Tom; Tom bit  the dog: 'twice', it's said.",
    "def f(x):\n\treturn x + 1\n",
] * 3


@pytest.fixture(scope="module")
def trained() -> dict[tuple[str, str], Any]:
    return {
        (kind, task): train_tokenizer(TEXTS, kind=kind, task=task)
        for kind in KINDS
        for task in ("translation", "language modelling", "masked language modelling")
    }


@pytest.mark.parametrize("task", ["translation", "language modelling", "masked language modelling"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_learned_is_written_back(trained: dict[Any, Any], kind: str, task: str) -> None:
    tokenizer = trained[kind, task]
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


@settings(max_examples=50)
@given(st.text().filter(lambda text: "▁" not in text))
def test_bytes_write_back_anything(text: str) -> None:
    for task in ("translation", "language modelling"):
        tokenizer = BYTES[task]
        ids = encode_texts(tokenizer, [text])[0]
        written = tokenizer.decode(ids[:-1])
        # For translation the first word is taken as if a space stood before it, and one space is not told from none.
        assert written == text or (task == "translation" and written == text.removeprefix(" "))


BYTES = {
    task: train_tokenizer(TEXTS, task=task, normalisation="none", vocabulary=300)
    for task in ("translation", "language modelling")
}


def test_the_first_word_is_the_word_it_is_elsewhere(trained: dict[Any, Any]) -> None:
    for kind in KINDS:
        tokens = trained[kind, "translation"].convert_ids_to_tokens(
            trained[kind, "translation"]("Tom bit Tom").input_ids
        )
        assert tokens[-1] == "</s>"
        if kind != "character":
            assert tokens[0] == tokens[-2]


def test_special_tokens_have_their_ids_and_are_text_inside_a_text(trained: dict[Any, Any]) -> None:
    for (_, task), tokenizer in trained.items():
        special = ["<pad>", "<s>", "</s>", "<unk>", *(["<mask>"] if task == "masked language modelling" else [])]
        assert tokenizer.convert_tokens_to_ids(special) == list(range(len(special)))
        ids = encode_texts(tokenizer, ["a </s> b <pad>"])[0]
        assert ids.count(tokenizer.eos_token_id) == 1 and ids[-1] == tokenizer.eos_token_id
        assert tokenizer.pad_token_id not in ids
    # Nor does text that is full of it teach it.
    for kind in KINDS:
        learned = train_tokenizer(["</s>", "a </s> <s> b"] * 50, kind=kind)
        assert learned.eos_token_id not in learned("a </s> b", split_special_tokens=True)["input_ids"][:-1]
    # Nothing is left switched over: a prompt with a mask still has its mask.
    masked = trained["bpe", "masked language modelling"]
    encode_texts(masked, ["x"])
    assert masked.mask_token_id in masked("the <mask> bit")["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_opened_by_autotokenizer(trained: dict[Any, Any], kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = trained[kind, "translation"]
    Tokenizers(tokenizer, tokenizer).save(tmp_path)
    opened = AutoTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, "  Unbekanntes Ж ", ""]:
        assert opened(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert opened.decode(opened(text)["input_ids"]) == tokenizer.decode(tokenizer(text)["input_ids"])
    assert Tokenizers.load(tmp_path).shared
    assert not list(tmp_path.glob("*.pkl"))


def test_one_tokenizer_or_one_each(tmp_path: Path) -> None:
    corpus = Corpus("own", "translation", {"train": [Pair("abc abd", "xyz"), Pair("abd", "xyy")]})
    shared = train_tokenizers(corpus, kind="character")
    apart = train_tokenizers(corpus, kind="character", shared=False)
    assert shared.shared and not apart.shared
    assert (len(shared.source), len(apart.source), len(apart.target)) == (4 + 8, 4 + 5, 4 + 3)
    apart.save(tmp_path)
    opened = Tokenizers.load(tmp_path)
    assert not opened.shared
    assert opened.target("xyz")["input_ids"] == apart.target("xyz")["input_ids"]
    assert opened.source("xyz")["input_ids"] == [3, 3, 3, 2]


def test_normalisation() -> None:
    texts = ["Ä ﬁx A\u0308"]
    ids = {
        form: train_tokenizer(texts, kind="character", normalisation=form)("Ä A\u0308 ﬁ").input_ids
        for form in ("none", "nfc", "nfkc")
    }
    assert [len(row) for row in ids.values()] == [7, 6, 7]
    assert ids["nfc"][0] == ids["nfc"][2] and ids["none"][0] != ids["none"][2]
    lower = train_tokenizer(texts, kind="character", lowercase=True)
    assert lower("ÄX").input_ids == lower("äx").input_ids


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_named_in_the_message_is_possible(kind: str) -> None:
    with pytest.raises(UsageError, match="vocabulary=90000 is larger than this text allows; the largest") as caught:
        train_tokenizer(TEXTS, kind=kind, vocabulary=90_000)
    largest = int(re.findall(r"is (\d+)$", str(caught.value))[0])
    assert len(train_tokenizer(TEXTS, kind=kind, vocabulary=largest)) == largest
    if kind in ("bpe", "unigram"):
        with pytest.raises(UsageError, match="vocabulary=7 is smaller than this text allows; the smallest") as caught:
            train_tokenizer(TEXTS, kind=kind, vocabulary=7)
        smallest = int(re.findall(r"is (\d+)$", str(caught.value))[0])
        assert len(train_tokenizer(TEXTS, kind=kind, vocabulary=smallest)) == smallest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "words"}, "unknown kind of tokenizer 'words'; did you mean 'word'"),
        ({"task": "translate"}, "unknown task of a tokenizer 'translate'; did you mean 'translation'"),
        ({"normalisation": "nfd"}, "unknown normalisation 'nfd'; did you mean 'nf"),
        ({"min_frequency": 2, "kind": "unigram"}, "min_frequency=2 is for bpe, word and character"),
        ({"min_frequency": 0}, "min_frequency=0; a token occurs at least once"),
    ],
)
def test_training_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train_tokenizer(TEXTS, **options)


def test_no_text_and_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no text to learn a tokenizer from"):
        train_tokenizer(["", "  "])
    with pytest.raises(DataError, match="there is no tokenizer folder .*absent"):  # noqa: RUF043
        open_tokenizer(tmp_path / "absent")
    with pytest.raises(DataError, match="holds no tokenizer, neither"):
        open_tokenizer(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write the tokenizer to"):
        tokenizer = train_tokenizer(["text"], kind="character")
        Tokenizers(tokenizer, tokenizer).save(tmp_path / "file")


def test_a_hub_that_does_not_answer_is_asked_once_and_silently(tmp_path: Path) -> None:
    """A port where nobody listens: no line of the library's own, none of its minute of attempts."""
    offline = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    code = """
import time
time.sleep = lambda seconds: (_ for _ in ()).throw(AssertionError("it waits to try again"))
from clockhands.data import open_tokenizer
from clockhands.errors import DataError
try:
    open_tokenizer("nobody/nothing")
except DataError as fault:
    print(fault)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **offline}, check=True
    )
    assert done.stderr == ""
    assert done.stdout.startswith("cannot open the tokenizer 'nobody/nothing' (no folder here, so taken for a name on")
    assert "it waits" not in done.stdout and done.stdout.count("\n") == 1


def test_existing_tokenizers_end_their_texts(tmp_path: Path) -> None:
    """As BERT's (a separator instead of an end) and GPT-2's (no padding, nothing added) are."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    def saved(name: str, template: str | None, **special: str) -> Path:
        tokenizer = Tokenizer(models.WordLevel({"[CLS]": 0, "[SEP]": 1, "a": 2, "[UNK]": 3}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        if template:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=template, special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
            )
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(tmp_path / name)
        return tmp_path / name

    bert = open_tokenizer(saved("bert", "[CLS] $A [SEP]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[UNK]"))
    assert encode_texts(bert, ["a a"]) == [[0, 2, 2, 1]]
    gpt = open_tokenizer(saved("gpt", None, eos_token="[SEP]"))
    assert encode_texts(gpt, ["a a", ""]) == [[2, 2, 1], [1]]
    assert encode_stream(gpt, ["a", "a a"]).tolist() == [2, 1, 2, 2, 1]
    assert gpt.pad_token_id == 4 and len(gpt) == 5
    with pytest.raises(UsageError, match="has no token that ends a text"):
        open_tokenizer(saved("none", None, unk_token="[UNK]"))


def test_bags_of_subwords_hide_the_order_of_roles() -> None:
    """The order-blind ceiling is one of words; it holds for tokens too, because no token knows where it stands."""
    corpus = open_corpus("roles", train=200, validation=20, test=20)
    tokenizer = train_tokenizers(corpus, vocabulary=400).source
    bags = [tuple(sorted(ids)) for ids in encode_texts(tokenizer, corpus.sources("test"))]
    assert all(bags.count(bag) >= 2 for bag in bags)


def test_the_fingerprint_is_that_of_what_both_tokenizers_do(tmp_path: Path) -> None:
    """It outlives saving, and a truncation set meanwhile; it changes with a word of either, or the form of the text."""
    first, second, third = (train_tokenizer([text], kind="word") for text in ("a b", "a c", "b c"))
    lower = train_tokenizer(["a b"], kind="word", lowercase=True)
    pairs = [(first, second), (first, third), (third, second), (first, first), (first, lower), (lower, lower)]
    assert len({Tokenizers(*pair).fingerprint for pair in pairs}) == len(pairs)
    both = Tokenizers(first, second)
    both.save(tmp_path)
    opened = Tokenizers.load(tmp_path)
    opened.source("a text", truncation=True, max_length=2)
    assert re.fullmatch("[0-9a-f]{32}", both.fingerprint) and opened.fingerprint == both.fingerprint


@pytest.mark.parametrize(("sentences", "size"), [(200, 1000), (4_000, 1866)])
def test_a_vocabulary_that_nobody_sizes_goes_by_the_text(sentences: int, size: int) -> None:
    """One piece for every 150 characters, and at least 1000; a unigram has every character of the text at least."""
    draw = random.Random(0)
    words = ["".join(draw.choices(string.ascii_lowercase, k=6)) for _ in range(10 * sentences)]
    texts = [" ".join(words[10 * row : 10 * row + 10]) + "." for row in range(sentences)]
    assert sum(map(len, texts)) == 70 * sentences
    assert train_tokenizer(texts).vocab_size == size
    assert train_tokenizer(["你好" + chr(0x4E00 + i) for i in range(2000)], kind="unigram").vocab_size > 2000
