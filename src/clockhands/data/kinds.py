"""The kinds of tokenizers: how each cuts a text, what it learns, and how it decodes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from clockhands.errors import UsageError, describe_unknown

Normalisation: TypeAlias = Literal["none", "nfc", "nfkc"]
TokenKind: TypeAlias = Literal["bpe", "unigram", "word", "character", "morpheme"]
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
LOOKS_SPECIAL = pre_tokenizers.Split(Regex("<(?=/?s>|pad>|unk>|mask>)"), "isolated")
"""Cuts what looks like a special token, so that no piece of a unigram tokenizer is one; the others cut at brackets."""
USUAL_VOCABULARY, LEAST_VOCABULARY = 8000, 1000
CHARACTERS_A_PIECE = 150
"""Of text, for one piece of a vocabulary whose size nobody gives."""
EVERYTHING = 10**9
WORD = r" ?\w+| ?[^\s\w]|\s"


def make_normalizer(lowercase: bool, normalisation: str, last: Any) -> Any:
    """Make the normalizer of a tokenizer; ``last`` is a step of its own. Raises UsageError for an unknown form."""
    forms: dict[str, list[Any]] = {"none": [], "nfc": [normalizers.NFC()], "nfkc": [normalizers.NFKC()]}
    if normalisation not in forms:
        raise UsageError(describe_unknown("normalisation", normalisation, forms))
    steps = [*forms[normalisation], *([normalizers.Lowercase()] if lowercase else []), *([last] if last else [])]
    return normalizers.Sequence(steps)


def make_untrained(
    kind: str, prefix: bool, special: list[str], vocabulary: int | None, min_frequency: int
) -> tuple[Tokenizer, Any]:
    """Make a tokenizer of a kind that learns, and its trainer. Raises UsageError for an option that the kind lacks.

    ``prefix``: whether texts get a space in front; ``special``: its special tokens.
    """
    common: dict[str, Any] = {"special_tokens": special, "show_progress": False}
    size = vocabulary or USUAL_VOCABULARY
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
        tokenizer.decoder = decoders.ByteLevel()
        if prefix:
            tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        return tokenizer, trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=alphabet, min_frequency=min_frequency, **common
        )
    if kind == "unigram":
        if min_frequency > 1:
            raise UsageError(f"min_frequency={min_frequency} is for bpe, word and character, not unigram")
        scheme: Literal["always", "never"] = "always" if prefix else "never"
        space = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([space, LOOKS_SPECIAL])
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
        return tokenizer, trainers.UnigramTrainer(vocab_size=size, unk_token=SPECIAL["unk_token"], **common)
    # Words and characters: the vocabulary is whatever the pattern cuts out.
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL["unk_token"]))
    pattern = WORD if kind == "word" else r"(?m)."
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    if kind == "word" and prefix:
        tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        tokenizer.normalizer = normalizers.Prepend(" ")
    size = vocabulary or EVERYTHING
    return tokenizer, trainers.WordLevelTrainer(vocab_size=size, min_frequency=min_frequency, **common)


KINDS = ("bpe", "unigram", "word", "character")
"""The kinds that learn from text; ``morpheme`` does not."""
