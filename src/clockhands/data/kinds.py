"""The kinds of tokenizer: what each learns from text, and the closed list of morphemes, of which nothing is learned."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
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
PIECE = 2**20
"""Characters of a long document that a tokenizer is given at a time: for each it takes 200 bytes and more."""
GAP = re.compile(r"(?<=\S)\s")
EVERYTHING = 10**9
WORD = r" ?\w+| ?[^\s\w]|\s"


def cut_long(text: str) -> Iterator[str]:
    """Yield a text in pieces of ``PIECE`` characters and more, each of which ends before white space."""
    start = 0
    while gap := GAP.search(text, start + PIECE):
        yield text[start : gap.start()]
        start = gap.start()
    yield text[start:]


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


@dataclass(frozen=True)
class Morphemes:
    """Roots, in any order, and texts that hold each root in every form that it can have.

    A form is a root with the space or hyphen before it and the punctuation after it: "nine", " nine" and "-nine" are
    three tokens.
    """

    roots: tuple[str, ...]
    texts: tuple[str, ...]

    def __add__(self, other: Morphemes) -> Morphemes:
        return Morphemes(self.roots + other.roots, self.texts + other.texts)


def find_roots(texts: Iterable[str], roots: Iterable[str]) -> tuple[str, ...]:
    """Return ``roots`` with further ones, so that all words of ``texts`` are made of them.

    What the known roots leave of the words becomes a root, the part with the most letters over all words first: of
    "einhundert" and "zweihundert", with "zwei" known, that is "hundert", and then "ein".
    """
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    forms = set(roots)
    while True:
        known = re.compile(_make_alternatives(forms))
        left = Counter(part for word in words for part in known.split(word) if part)
        if not left:
            return tuple(sorted(forms))
        forms.add(max(left, key=lambda part: (left[part] * len(part), part)))


def make_tokenizer(morphemes: Morphemes, special: Sequence[str], normalizer: Any) -> Tokenizer:
    """Return a tokenizer of the forms that occur in the texts of ``morphemes``, after the ``special`` tokens.

    Whatever else it reads is cut into single characters, which are unknown unless the texts have them too.
    """
    roots = {normalizer.normalize_str(root) for root in morphemes.roots}
    tokenizer = Tokenizer(models.WordLevel({}, unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizer
    # Not within brackets of its own: a space or hyphen, a root, punctuation; or any one character.
    form = rf"[\s\-]*(?:{_make_alternatives(roots)})[^\w\s\-]*|(?m:.)"
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(form), "isolated")
    tokenizer.decoder = decoders.Fuse()
    cut = map(tokenizer.pre_tokenizer.pre_tokenize_str, map(normalizer.normalize_str, morphemes.texts))
    forms = sorted({part for part, _ in chain.from_iterable(cut)} - set(special))
    tokenizer.model = models.WordLevel(
        {token: number for number, token in enumerate([*special, *forms])}, unk_token=SPECIAL["unk_token"]
    )
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def _make_alternatives(roots: Iterable[str]) -> str:
    """Return a pattern of all roots, the longest first: "siebzehn" before "sieb"."""
    return "|".join(map(re.escape, sorted(roots, key=lambda root: (-len(root), root))))
