"""Sentences that a reader asks about: token ids, tokens as text, and the same sentence with two words swapped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from clockhands.errors import UsageError
from clockhands.inspection.reading.swapped_sentences import find_two_longest
from clockhands.inspection.reading.token_ids import check_tokenizer, encode_text
from clockhands.inspection.reading.windows import Windows
from clockhands.models.subject import Subject
from clockhands.shapes import Bool, Int, Tensor

MOST_SENTENCES = 8
"""Sentences that one page shows."""
MOST_TOKENS = 48
"""Tokens of a sentence whose attention can still be read off a picture."""


@dataclass(frozen=True)
class Sentence:
    """One sentence as a model reads it.

    Attributes:
        text: as it was given.
        ids: token ids, with the special tokens that its tokenizer puts around a text.
        tokens: each token as text.
        ordinary_T: False at special tokens.
        swapped: its text with two words swapped; empty where it has no two different words.
        swapped_ids: the token ids of that text.
        source: the ids that the encoder reads for a decoder: the sentence itself; None for other models.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    ordinary_T: Bool[Tensor, " T"]
    swapped: str
    swapped_ids: list[int]
    source: list[int] | None = None

    @property
    def has_comparable_swap(self) -> bool:
        """Whether the text with two words swapped has as many tokens as the sentence, so that both fit one batch."""
        return len(self.swapped_ids) == len(self.ids)


def encode_sentences(subject: Subject, texts: Sequence[str], *, option: str = "--sentence") -> list[Sentence]:
    """Return the sentences as this model reads them; ``option`` is the name of the option in the messages.

    Raises UsageError for the first that is empty, has one token, no token that its tokenizer knows, or more tokens
    than the model reads or a picture shows; for too many sentences; and for a model without a tokenizer. Raises
    DataError for a token that the model does not know.
    """
    if not texts:
        return []
    if len(texts) > MOST_SENTENCES:
        raise UsageError(f"{option} was given {len(texts)} times; a page shows at most {MOST_SENTENCES} sentences")
    check_tokenizer(subject, f"{option} needs")
    return [_make_sentence(subject, text, option) for text in texts]


def check_sentence_lengths(sentences: Sequence[Sentence], windows: Windows) -> None:
    """Raise UsageError for a sentence longer than the windows of text, from which the means by position come.

    Only ``inspect`` reads sentences beside windows, so that the message names its option.
    """
    most = int(windows.ordinary_T.sum())
    for sentence in sentences:
        count = int(sentence.ordinary_T.sum())
        if count > most:
            raise UsageError(
                f"--sentence {sentence.text!r} has {count} tokens, and the windows of text that it is compared with "
                f"have {most}; give a greater --length (length=...)"
            )


def make_comparison_rows(
    sentence: Sentence, windows: Windows, count: int
) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N S"] | None]:
    """Return token ids of rows as long as the sentence, and the sources of a decoder: the sentence, then other texts.

    The second row is the sentence with its words swapped, where that has as many tokens, else the sentence again. The
    others are the first ordinary tokens of at most ``count`` windows, with the special tokens of the sentence.
    """
    ids_T = torch.tensor(sentence.ids)
    others_NT = windows.ids_NT[:count][:, windows.ordinary_T][:, : int(sentence.ordinary_T.sum())]
    rows_NT = ids_T.repeat(2 + len(others_NT), 1)
    rows_NT[1] = torch.tensor(sentence.swapped_ids) if sentence.has_comparable_swap else ids_T
    rows_NT[2:, sentence.ordinary_T] = others_NT
    if windows.source_NS is None or sentence.source is None:
        return rows_NT, None
    sources_NS = windows.source_NS[:count]
    width = max(len(sentence.source), sources_NS.shape[1])
    padded_NS = torch.full((len(rows_NT), width), -1)
    padded_NS[:2, : len(sentence.source)] = torch.tensor(sentence.source)
    padded_NS[2:, : sources_NS.shape[1]] = sources_NS
    return rows_NT, padded_NS


def _make_sentence(subject: Subject, text: str, option: str) -> Sentence:
    """Return one sentence as this model reads it; raise UsageError as ``encode_sentences``."""
    if not text.strip():
        raise UsageError(f"{option} is empty; give a sentence of at least two tokens")
    ids, ordinary_T = encode_text(subject, text)
    _check_length(subject, text, int(ordinary_T.sum()), len(ids), option)
    bare = torch.tensor(ids)[ordinary_T].tolist()
    unknown = getattr(subject.tokenizer, "unk_token_id", None)
    if unknown is not None and set(bare) == {unknown}:
        raise UsageError(
            f"{option} {text!r} holds no token that the model's tokenizer knows; give one of the language it was "
            "trained on"
        )
    subject.check_ids(torch.tensor([ids]))
    swapped = swap_longest_words(text)
    source = _encode_source(subject, text, option) if subject.reads_source else None
    return Sentence(
        text,
        ids,
        decode_tokens(subject.tokenizer, ids),
        ordinary_T,
        swapped,
        encode_text(subject, swapped)[0] if swapped else [],
        source,
    )


def _encode_source(subject: Subject, text: str, option: str) -> list[int]:
    """Return the ids that the encoder reads of a sentence. Raises UsageError for more than it has positions for."""
    tokenizer = subject.source_tokenizer or subject.tokenizer
    ids, most = list(tokenizer(text)["input_ids"]), subject.max_source_length
    if most is not None and len(ids) > most:
        raise UsageError(
            f"{option} {text[:40]!r} has {len(ids)} tokens as a source, and the encoder reads at most {most}; give a "
            "shorter one"
        )
    return ids


def _check_length(subject: Subject, text: str, count: int, total: int, option: str) -> None:
    """Raise UsageError for fewer than two ordinary tokens, and for more than the model reads or a picture shows."""
    if count < 2:
        raise UsageError(
            f"{option} {text!r} is {'one token' if count else 'no token'} to the model's tokenizer; at least two are "
            "needed for anything to have an order"
        )
    if subject.max_length is not None and total > subject.max_length:
        raise UsageError(
            f"{option} {text[:40]!r} has {total} tokens, special ones included, and the model reads at most "
            f"{subject.max_length}; give a shorter one"
        )
    if total > MOST_TOKENS:
        raise UsageError(
            f"{option} {text[:40]!r} has {total} tokens, special ones included; at most {MOST_TOKENS} can be "
            "read off a picture of attention: give a shorter one"
        )


def swap_words(text: str, first: int, second: int) -> str:
    """Return the text with its words of these indices swapped; punctuation stays where it is.

    Words are what spaces separate, without the punctuation around them. Several spaces become one.
    """
    pieces = text.split()
    (lead, word, tail), (other_lead, other, other_tail) = _cut_word(pieces[first]), _cut_word(pieces[second])
    pieces[first], pieces[second] = f"{lead}{other}{tail}", f"{other_lead}{word}{other_tail}"
    return " ".join(pieces)


def list_words(text: str) -> list[str]:
    """Return the words of a text, without the punctuation around them."""
    return [_cut_word(piece)[1] for piece in text.split()]


def _cut_word(piece: str) -> tuple[str, str, str]:
    """Return the punctuation before a word, the word, and the punctuation after it; punctuation alone is a word."""
    match = re.fullmatch(r"(\W*)(.*?)(\W*)", piece)
    return (match[1], match[2], match[3]) if match and match[2] else ("", piece, "")


def swap_longest_words(text: str) -> str:
    """Return the text with its two longest different words swapped; empty where it has no two different words."""
    words = list_words(text)
    return swap_words(text, *find_two_longest(words)) if len(set(words)) > 1 else ""


def decode_tokens(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return every token as text, without the marks that tokenizers put before words.

    Tokens of a byte-level tokenizer stand for bytes: "Ã©" is read as é, and a part of a character becomes �.
    """
    pieces = [str(piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))]
    if "ByteLevel" in str(getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", "")):
        pieces = [tokenizer.convert_tokens_to_string([piece]).removeprefix(" ") for piece in pieces]
    return [piece.replace("Ġ", "").replace("▁", "").removeprefix("##") or "␣" for piece in pieces]
