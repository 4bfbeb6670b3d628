"""The kinds of tokenizers: how each cuts a text, what it learns, and how it decodes.

Each is a function of (whether texts get a space in front, special tokens, size of the vocabulary, least frequency) that
returns an untrained tokenizer and its trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from clockhands.errors import UsageError, describe_unknown

Normalisation: TypeAlias = Literal["none", "nfc", "nfkc"]
TokenKind: TypeAlias = Literal["bpe", "unigram", "word", "character", "morpheme"]
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
LOOKS_SPECIAL = pre_tokenizers.Split(Regex("<(?=/?s>|pad>|unk>|mask>)"), "isolated")
"""Cuts what looks like a special token, so that no piece of a unigram tokenizer is one; the others cut at brackets."""
USUAL_VOCABULARY = 8000
EVERYTHING = 10**9
WORD = r" ?\w+| ?[^\s\w]|\s"


def make_normalizer(lowercase: bool, normalisation: str, last: Any) -> Any:
    """Make the normalizer of a tokenizer; ``last`` is a step of its own. Raises UsageError for an unknown form."""
    forms: dict[str, list[Any]] = {"none": [], "nfc": [normalizers.NFC()], "nfkc": [normalizers.NFKC()]}
    if normalisation not in forms:
        raise UsageError(describe_unknown("normalisation", normalisation, forms))
    steps = [*forms[normalisation], *([normalizers.Lowercase()] if lowercase else []), *([last] if last else [])]
    return normalizers.Sequence(steps)


def _make_bpe(prefix: bool, special: list[str], vocabulary: int | None, min_frequency: int) -> tuple[Tokenizer, Any]:
    """Make a tokenizer of byte pairs, and its trainer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = _make_decoder(decoders.ByteLevel(), prefix)
    return tokenizer, trainers.BpeTrainer(
        vocab_size=vocabulary or USUAL_VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=min_frequency,
        show_progress=False,
    )


def _make_unigram(
    prefix: bool, special: list[str], vocabulary: int | None, min_frequency: int
) -> tuple[Tokenizer, Any]:
    """Make a unigram tokenizer, and its trainer."""
    if min_frequency > 1:
        raise UsageError(f"min_frequency={min_frequency} is for bpe, word and character, not unigram")
    scheme: Literal["always", "never"] = "always" if prefix else "never"
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme=scheme), LOOKS_SPECIAL])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=vocabulary or USUAL_VOCABULARY,
        special_tokens=special,
        unk_token=SPECIAL["unk_token"],
        show_progress=False,
    )


def _make_word(prefix: bool, special: list[str], vocabulary: int | None, min_frequency: int) -> tuple[Tokenizer, Any]:
    """Make a tokenizer of words, and its trainer."""
    tokenizer, trainer = _make_whole(WORD, special, vocabulary, min_frequency)
    tokenizer.decoder = _make_decoder(decoders.Fuse(), prefix)
    if prefix:
        tokenizer.normalizer = normalizers.Prepend(" ")
    return tokenizer, trainer


def _make_character(_: bool, special: list[str], vocabulary: int | None, min_frequency: int) -> tuple[Tokenizer, Any]:
    """Make a tokenizer of characters, and its trainer."""
    tokenizer, trainer = _make_whole(r"(?m).", special, vocabulary, min_frequency)
    tokenizer.decoder = decoders.Fuse()
    return tokenizer, trainer


def _make_whole(pattern: str, special: list[str], vocabulary: int | None, min_frequency: int) -> tuple[Tokenizer, Any]:
    """Make a vocabulary of whatever the pattern cuts out."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    return tokenizer, trainers.WordLevelTrainer(
        vocab_size=vocabulary or EVERYTHING, special_tokens=special, min_frequency=min_frequency, show_progress=False
    )


def _make_decoder(joined: Any, prefix: bool) -> Any:
    return decoders.Sequence([joined, decoders.Strip(" ", 1, 0)]) if prefix else joined


KINDS: dict[str, Callable[[bool, list[str], int | None, int], tuple[Tokenizer, Any]]] = {
    "bpe": _make_bpe,
    "unigram": _make_unigram,
    "word": _make_word,
    "character": _make_character,
}
