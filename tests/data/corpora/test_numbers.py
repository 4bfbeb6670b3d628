"""Numbers: exact translations, splits that share nothing, longer ones without a new word."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
from num2words import CONVERTER_CLASSES, num2words

from clockhands.data import Corpus, Tokenizers, encode_texts, open_corpus, train_tokenizers
from clockhands.data.corpora.numbers import FAULTS, spell
from clockhands.data.corpora.numbers import numbers as make_numbers
from clockhands.errors import UsageError
from clockhands.runs.recipe.sections import Tokenization

SMALL = {"train": 300, "validation": 40, "test": 60, "longer": 20}


@pytest.fixture(scope="module")
def numbers() -> Corpus:
    return open_corpus("numbers", **SMALL)


def test_numbers_are_what_num2words_writes(numbers: Corpus) -> None:
    written = {(num2words(n, lang="de"), num2words(n, lang="en")) for n in range(1000)}
    short = [pair for pair in numbers.pairs("train") if (pair.source, pair.target) in written]
    # A third of the digits counts lie below 1000, so the short ones are a good part of the training text.
    assert len(short) > 50
    by_source = {num2words(n, lang="de"): num2words(n, lang="en") for n in range(1000)}
    assert all(by_source[pair.source] == pair.target for pair in numbers.pairs("test") if pair.source in by_source)


@pytest.mark.parametrize("language", sorted(CONVERTER_CLASSES))
def test_every_language_is_spelled_as_num2words_does(language: str) -> None:
    small, large = (0, 7, 19, 21, 80, 99, 100, 101, 999), (1000, 1001, 21_345, 700_071, 10**6, 10**9 + 1)
    for number in small + large:
        try:
            expected = num2words(number, lang=language)
        except FAULTS:
            with pytest.raises(UsageError, match=f"num2words cannot write {number:,} in language {language!r}"):
                spell(number, language)
        else:
            assert spell(number, language) == expected


def test_a_language_that_does_not_reach_that_far() -> None:
    with pytest.raises(UsageError, match="num2words cannot write 999,999,999,999 in language 'en_IN'"):
        spell(10**12 - 1, "en_IN")


def test_numbers_splits_have_their_sizes_and_share_nothing(numbers: Corpus) -> None:
    sizes = {split: len(numbers[split]) for split in numbers}
    assert {key: sizes[key] for key in ("validation", "test")} == {"validation": 40, "test": 60}
    assert sizes["longer-7"] == sizes["longer-8"] == sizes["longer-9"] == 20
    sources = [source for split in numbers for source in numbers.sources(split)]
    assert max(Counter(sources).values()) == 1


def test_longer_numbers_are_longer_but_hold_no_new_word(numbers: Corpus) -> None:
    spelled = open_corpus("numbers", **SMALL, source="en", target="fr")
    for corpus in (numbers, spelled):
        short = [pair for pair in corpus.pairs("train") if "illion" not in pair.source]
        longer = [pair for split in corpus if split.startswith("longer") for pair in corpus.pairs(split)]
        assert min(len(pair.source) for pair in longer) > max(len(pair.source) for pair in short)
        assert min(len(pair.target) for pair in longer) > max(len(pair.target) for pair in short)
    words = {word for text in spelled.sources("train") for word in text.replace(",", "").replace("-", " ").split()}
    needed = {word for text in spelled.sources("longer-9") for word in text.replace(",", "").replace("-", " ").split()}
    assert needed <= words


def test_numbers_cover_a_small_range_completely() -> None:
    corpus = open_corpus("numbers", largest=99, train=80, validation=10, test=10, longer=0)
    sources = {source for split in corpus for source in corpus.sources(split)}
    assert sources == {num2words(n, lang="de") for n in range(100)}
    assert list(corpus) == ["train", "validation", "test"]


def test_a_small_range_has_fewer_longer_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 10 to 99 that are longer than the drawn numbers, each spelled once however often it is drawn."""
    spelled: Counter[tuple[int, str]] = Counter()

    def count(number: int, language: str) -> str:
        spelled[number, language] += 1
        return spell(number, language)

    monkeypatch.setattr("clockhands.data.corpora.numbers.spell", count)
    corpus = open_corpus("numbers", largest=9, train=5, validation=2, test=2, longer=200)
    drawn = corpus.pairs("train")[:5]
    longest = [max(len(pair.source) for pair in drawn), max(len(pair.target) for pair in drawn)]
    both = {num2words(n, lang="de"): num2words(n, lang="en") for n in range(10, 100)}
    expected = {de for de, en in both.items() if len(de) > longest[0] and len(en) > longest[1]}
    assert set(corpus.sources("longer-2")) == expected and len(corpus["longer-2"]) == len(expected) < 90
    assert len(corpus["longer-3"]) == len(corpus["longer-4"]) == 200
    assert max(spelled.values()) <= 2, "once for the round ones that train sees, and once for the longer split"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "dee"}, "unknown language 'dee'; did you mean 'de'"),
        ({"largest": 5}, "largest is 5, but must be from 9 to 999,999,999,999"),
        ({"test": 0}, "test is 0, but must be at least 1"),
        ({"largest": 999}, "ask for 21,500 numbers, and from 0 to 999 there are 1,000"),
    ],
)
def test_numbers_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_corpus("numbers", **options)


def check_round_trip(chosen: Sequence[int], tokenizers: Tokenizers) -> list[int]:
    """Every number in both languages is written back; return how many tokens each had."""
    lengths = []
    for language in ("de", "en"):
        texts = [num2words(number, lang=language) for number in chosen]
        encoded = encode_texts(tokenizers.source, texts)
        assert tokenizers.source.backend_tokenizer.decode_batch(encoded) == texts
        lengths += [len(ids) - 1 for ids in encoded]
    return lengths


def test_the_morphemes_write_back_numbers_and_are_few(tmp_path: Path) -> None:
    """All numbers below 3,000, a sample of the rest and of the longer splits; all of them in the slow test below."""
    from transformers import AutoTokenizer

    corpus = open_corpus("numbers")
    tokenizers = train_tokenizers(corpus)
    check_round_trip([*range(3000), *random.Random(0).sample(range(3000, 10**9), 2000)], tokenizers)
    pairs = [pair for split in ("train", "validation", "test") for pair in corpus.pairs(split)]
    sides = [text for pair in pairs for text in (pair.source, pair.target)]
    lengths = [len(ids) - 1 for ids in encode_texts(tokenizers.source, sides)]
    told = f"about {fmean(lengths):.1f} tokens on average as drawn, and at most {max(lengths)}."
    assert told in " ".join((make_numbers.__doc__ or "").split())
    told = f"(about {fmean(lengths):.1f} tokens a number on average, at most {max(lengths)})"
    assert told in " ".join((Tokenization.__doc__ or "").split())
    assert len(tokenizers.source) < 150
    german = tokenizers.source("einhunderteinundzwanzigtausendsiebzehn")["input_ids"]
    cut = ["ein", "hundert", "ein", "und", "zwanzig", "tausend", "siebzehn", "</s>"]
    assert tokenizers.source.convert_ids_to_tokens(german) == cut
    tokenizers.save(tmp_path)
    opened = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
    assert opened("zweiundvierzig")["input_ids"] == tokenizers.source("zweiundvierzig")["input_ids"]
    assert opened.decode(german, skip_special_tokens=True) == "einhunderteinundzwanzigtausendsiebzehn"


@pytest.mark.slow
def test_the_morphemes_write_back_all_numbers() -> None:
    tokenizers = train_tokenizers(open_corpus("numbers"))
    for start in range(0, 10**6, 20_000):
        assert max(check_round_trip(range(start, start + 20_000), tokenizers)) <= 11


@pytest.mark.parametrize("language", ["es", "fr", "sv", "pl", "ja"])
def test_other_languages_have_their_morphemes(language: str) -> None:
    corpus = open_corpus("numbers", **SMALL, source=language)
    tokenizer = train_tokenizers(corpus, shared=False).source
    for split in corpus:
        encoded = encode_texts(tokenizer, corpus.sources(split))
        assert tokenizer.batch_decode(encoded, skip_special_tokens=True) == corpus.sources(split)
