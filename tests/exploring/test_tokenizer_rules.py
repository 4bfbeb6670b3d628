"""The pattern of a tokenizer in the syntax of JavaScript, and what else the page needs to cut and join text."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from clockhands.data import Corpus, Pair
from clockhands.data.tokens import train_tokenizers
from clockhands.exploring.tokenizer_rules import describe_tokens, find_tokenizer_faults, read_rules, translate_pattern

PAIRS = [Pair("Tom bit a dog.", "Tom mordis hundon."), Pair("ein-zwei  Straße", "one-two street!")]
TEXTS = ["Tom bit a dog.", "  Straße\tund 12_3 Café, e\u0301t\u00e9!", "你好 x-y", "ein\nzwei", "😀 dog"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r" ?\w+| ?[^\s\w]|\s", r" ?[\p{L}\p{M}\p{N}\p{Pc}]+| ?[^\s\p{L}\p{M}\p{N}\p{Pc}]|\s"),
        (r"(?m).", r"[\s\S]"),
        (r"[\s\-]*(?:a\-b|c\ d|e\.)[^\w\s\-]*|(?m:.)", r"[\s\-]*(?:a-b|c d|e\.)[^\p{L}\p{M}\p{N}\p{Pc}\s\-]*|[\s\S]"),
        (r"x\#y\&z", "x#y&z"),
    ],
)
def test_a_pattern_is_rewritten(pattern: str, expected: str) -> None:
    assert translate_pattern(pattern) == expected


@pytest.mark.parametrize("kind", ["word", "character"])
def test_javascript_cuts_as_the_tokenizer_does(kind: str) -> None:
    """With Node, where there is one: the pieces of texts of many scripts."""
    if shutil.which("node") is None:
        pytest.skip("there is no node to run the pattern")
    tokenizer = train_tokenizers(Corpus("few", "translation", {"train": PAIRS}), kind=kind).source
    rules = read_rules(tokenizer)
    code = (
        f"const texts = {json.dumps(TEXTS)}, rules = {json.dumps(rules)};"
        "console.log(JSON.stringify(texts.map((text) => "
        '[...(rules.prefix + text.normalize("NFC")).matchAll(new RegExp(rules.pattern, "gu"))].map((one) => one[0]))))'
    )
    pieces = json.loads(subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True).stdout)
    backend = tokenizer.backend_tokenizer
    for text, ours in zip(TEXTS, pieces, strict=True):
        theirs = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
        assert ours == [piece for piece, _ in theirs]


def test_rules_and_tokens_are_those_of_the_tokenizer() -> None:
    tokenizers = train_tokenizers(Corpus("few", "translation", {"train": PAIRS}), kind="word", lowercase=True)
    rules = read_rules(tokenizers.source)
    assert (rules["nfc"], rules["nfkc"], rules["lowercase"], rules["prefix"]) == (True, False, True, " ")
    assert (rules["unknownId"], rules["endId"], rules["stripsSpace"]) == (3, 2, True)
    tokens = describe_tokens(tokenizers.source, len(tokenizers.source) + 1)
    assert tokens.pop() == {"text": "", "special": True}, "an embedding that no token has"
    assert [token["text"] for token in tokens] == tokenizers.source.convert_ids_to_tokens(list(range(len(tokens))))
    assert [token["special"] for token in tokens[:5]] == [True, True, True, True, False]
    assert list(find_tokenizer_faults(tokenizers)) == []


def test_a_tokenizer_of_pieces_is_named() -> None:
    tokenizers = train_tokenizers(Corpus("few", "translation", {"train": PAIRS}), kind="unigram")
    (fault,) = find_tokenizer_faults(tokenizers)
    assert "of the kind Unigram" in fault


def test_byte_pairs_are_their_merges() -> None:
    tokenizer = train_tokenizers(Corpus("few", "translation", {"train": PAIRS}), kind="bpe", vocabulary=300).source
    rules = read_rules(tokenizer)
    assert (rules["prefix"], rules["stripsSpace"], rules["endId"]) == (" ", True, 2)
    assert len(rules["merges"]) == 300 - 256 - 4 and all(len(merge) == 2 for merge in rules["merges"])
