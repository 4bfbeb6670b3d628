"""Short sentences with two words swapped, as token ids: built-in English ones, or those of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from clockhands.inspection.reading.token_ids import encode_bare, encode_text, find_special_tokens
from clockhands.models.subject import Subject

NOUNS = ("Tom", "a dog", "Anna", "the king", "my sister", "a wolf", "the doctor", "Peter")
VERBS = ("bit", "saw", "followed", "paid", "heard", "forgot")
"""Subjects, objects and verbs of the built-in sentences, such as "Tom bit a dog"."""
LEAST_WORDS, MOST_WORDS = 4, 20
"""Words of a sentence in which two words are swapped: at least so many and at most so many."""


@dataclass(frozen=True)
class Swap:
    """A sentence before and after two of its words changed places: token ids and texts, and a decoder's source ids.

    ``unit``: what changed places: two words, or the first and the last token.
    """

    before: list[int]
    after: list[int]
    text: str
    swapped: str
    source: list[int] | None = None
    unit: Literal["word", "token"] = "word"


def make_english_swaps(subject: Subject) -> Iterator[Swap]:
    """Yield built-in English sentences with subject and object swapped; none is longer than the model reads."""
    for verb in VERBS:
        for a, b in zip(NOUNS[0::2], NOUNS[1::2], strict=True):
            first, second = f"{a} {verb} {b}.", f"{b} {verb} {a}."
            before, after = encode_text(subject, first)[0], encode_text(subject, second)[0]
            source = _encode_source(subject, first)
            if _fits(subject, source, before, after):
                yield Swap(before, after, first, second, source)


def find_largest_id(swaps: Sequence[Swap]) -> int:
    """Return the largest token id of all sentences; -1 of none."""
    return max((token for swap in swaps for token in (*swap.before, *swap.after)), default=-1)


def compute_unknown_share(subject: Subject, swaps: list[Swap]) -> float:
    """Return the share of unknown tokens in the sentences before the swap.

    It is 1 for sentences of which the tokenizer makes no token at all, and 0 where there are no sentences.
    """
    unknown = getattr(subject.tokenizer, "unk_token_id", None)
    ids = [token for swap in swaps for token in encode_bare(subject.tokenizer, swap.text)]
    if not ids:
        return float(bool(swaps))
    return ids.count(unknown) / len(ids) if unknown is not None else 0.0


def make_text_swaps(subject: Subject, texts: Sequence[str] | None) -> Iterator[Swap] | None:
    """Return sentences of ``texts``, or of the training text, with two words swapped; None if there is neither."""
    chosen = texts if texts is not None else subject.training_texts
    if chosen is not None:
        return _list_swaps(
            subject, [(None, line.strip()) for text in chosen for line in text.split("\n") if line.strip()]
        )
    return None if subject.training_pairs is None else _list_swaps(subject, subject.training_pairs)


def _list_swaps(subject: Subject, sentences: Sequence[tuple[str | None, str]]) -> Iterator[Swap]:
    """Yield sentences with two words swapped, then those that are too short for that with two tokens swapped."""
    for source, text in sentences:
        words = text.split()
        if LEAST_WORDS <= len(words) <= MOST_WORDS:
            i, j = find_two_longest(words)
            words[i], words[j] = words[j], words[i]
            other = " ".join(words)
            before, after = encode_text(subject, text)[0], encode_text(subject, other)[0]
            source_ids = _encode_source(subject, source or text)
            # Words that the tokenizer does not know have one and the same id.
            if before != after and _fits(subject, source_ids, before, after):
                yield Swap(before, after, text, other, source_ids)
    for source, text in sentences:
        if len(text.split()) < LEAST_WORDS:
            yield from _swap_tokens(subject, text, _encode_source(subject, source or text))


def _fits(subject: Subject, source: Sequence[int] | None, *texts: Sequence[int]) -> bool:
    """Tell whether the model reads as many tokens as each of these texts has, and its encoder as many as the source."""
    limits = [(subject.max_length, text) for text in texts] + [(subject.max_source_length, source or ())]
    return all(limit is None or len(ids) <= limit for limit, ids in limits)


def _encode_source(subject: Subject, source: str) -> list[int] | None:
    """Return the token ids of a source, special tokens included; None where no tokenizer of sources is known.

    The encoder then reads the ids that the decoder reads.
    """
    return list(subject.source_tokenizer(source)["input_ids"]) if subject.source_tokenizer is not None else None


def find_two_longest(words: Sequence[str]) -> tuple[int, int]:
    """Return the indices of the two longest different words, of two equal ones if all are; words of letters first."""
    order = sorted(range(len(words)), key=lambda index: (not words[index].isalpha(), -len(words[index]), index))
    first = order[0]
    second = next((index for index in order[1:] if words[index] != words[first]), order[1])
    return first, second


def _swap_tokens(subject: Subject, text: str, source: list[int] | None) -> Iterator[Swap]:
    """Yield the text with its first and its last token swapped, if they differ and the model reads so many tokens."""
    ids = encode_bare(subject.tokenizer, text)
    if len(ids) < 2 or ids[0] == ids[-1]:
        return
    before, after = find_special_tokens(subject.tokenizer, subject.start_token)
    other = [ids[-1], *ids[1:-1], ids[0]]
    if _fits(subject, source, [*before, *ids, *after]):
        swapped = str(subject.tokenizer.decode(other))
        yield Swap([*before, *ids, *after], [*before, *other, *after], text, swapped, source, "token")
