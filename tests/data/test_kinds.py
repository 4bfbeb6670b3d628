"""Morphemes: which roots are found, and what a tokenizer of a closed list reads and writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.data import Corpus, Pair, Tokenizers, encode_texts, train_tokenizers
from clockhands.data.kinds import Morphemes, find_roots
from clockhands.errors import UsageError

GERMAN = ("einhundert", "zweihundert", "dreihundert", "einundzwanzig", "zweiundzwanzig", "dreiundzwanzig")


def corpus(**rest: object) -> Corpus:
    source = Morphemes(("one", "seven", "seventeen", "and"), ("seventeen and one", "one, seven-seven", "seven", "one"))
    target = Morphemes(("UN", "SEPT"), ("UN SEPT", "SEPT UN"))
    return Corpus("own", "translation", {"train": [Pair("one", "UN")]}, morphemes=lambda: (source, target), **rest)


def cut(tokenizer: object, text: str) -> list[str]:
    return tokenizer.convert_ids_to_tokens(encode_texts(tokenizer, [text])[0])  # type: ignore[attr-defined]


def test_what_is_left_most_often_is_a_root() -> None:
    """Not "einhundert", which is left whole as long as "hundert" is none, and not "h", "und" and "ert"."""
    found = find_roots(GERMAN, ("eins", "zwei", "drei", "zwanzig"))
    assert set(found) == {"eins", "zwei", "drei", "zwanzig", "hundert", "und", "ein"}
    assert find_roots([], ("a",)) == ("a",)


def test_a_text_is_cut_into_the_longest_roots_with_what_stands_beside_them() -> None:
    tokenizer = train_tokenizers(corpus(), shared=False).source
    assert cut(tokenizer, "seventeen and one") == ["seventeen", " and", " one", "</s>"]
    assert cut(tokenizer, "one, seven-seven") == ["one,", " seven", "-seven", "</s>"]
    assert len(tokenizer) == 4 + 8, "the special ones, and the eight forms in the texts"


def test_what_is_in_no_list_is_unknown_one_character_at_a_time() -> None:
    tokenizer = train_tokenizers(corpus(), shared=False).source
    assert cut(tokenizer, "sevenxy") == ["seven", "<unk>", "<unk>", "</s>"]
    assert cut(tokenizer, "</s>") == ["<unk>"] * 4 + ["</s>"], "no text is a special token"


def test_one_list_for_both_sides_or_one_each(tmp_path: Path) -> None:
    apart, shared = train_tokenizers(corpus(), shared=False), train_tokenizers(corpus())
    assert not apart.shared and cut(apart.target, "UN SEPT") == ["UN", " SEPT", "</s>"]
    assert shared.shared and cut(shared.source, "SEPT UN")[:-1] + cut(shared.source, "one")[:-1] == [
        "SEPT",
        " UN",
        "one",
    ]
    apart.save(tmp_path)
    opened = Tokenizers.load(tmp_path)
    assert (opened.fingerprint, shared.fingerprint) == (apart.fingerprint, train_tokenizers(corpus()).fingerprint)


def test_letters_are_made_small_in_roots_and_texts() -> None:
    tokenizer = train_tokenizers(corpus(), shared=False, lowercase=True).target
    assert cut(tokenizer, "UN sept") == ["un", " sept", "</s>"]


def test_the_list_is_taken_where_nothing_else_is_asked_for() -> None:
    assert "seventeen" in train_tokenizers(corpus()).source.get_vocab()
    assert "seventeen" not in train_tokenizers(corpus(), vocabulary=262).source.get_vocab()
    assert "seventeen" not in train_tokenizers(corpus(), kind="character").source.get_vocab()
    plain = Corpus("own", "translation", {"train": [Pair("one", "UN")]})
    with pytest.raises(UsageError, match="corpus 'own' has no list of morphemes"):
        train_tokenizers(plain, kind="morpheme")
