"""Short sentences with two words swapped, as token ids: built-in English ones, or those of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clockhands.inspection.reading.windows import encode_bare, find_special_tokens
from clockhands.inspection.subject.subject import Subject

NOUNS = ("Tom", "a dog", "Anna", "the king", "my sister", "a wolf", "the doctor", "Peter")
VERBS = ("bit", "saw", "followed", "paid", "heard", "forgot")
SHORTEST, LONGEST = 4, 20


@dataclass(frozen=True)
class Swap:
    """Token ids of a sentence before and after, how both read, and the source that a decoder is given."""

    before: list[int]
    after: list[int]
    text: str
    swapped: str
    source: list[int] | None = None


def make_english_swaps(subject: Subject) -> Iterator[Swap]:
    for verb in VERBS:
        for a, b in zip(NOUNS[0::2], NOUNS[1::2], strict=True):
            first, second = f"{a} {verb} {b}.", f"{b} {verb} {a}."
            before, after = _ids(subject, first), _ids(subject, second)
            if _fits(subject, before, after):
                yield Swap(before, after, first, second)


def find_largest_id(swaps: Sequence[Swap]) -> int:
    """Return the largest token id of all sentences; -1 of none."""
    return max((token for swap in swaps for token in (*swap.before, *swap.after)), default=-1)


def compute_unknown_share(subject: Subject, swaps: list[Swap]) -> float:
    """The share of tokens that the tokenizer has no word for."""
    unknown = getattr(subject.tokenizer, "unk_token_id", None)
    ids = [token for swap in swaps for token in encode_bare(subject.tokenizer, swap.text)]
    return ids.count(unknown) / max(len(ids), 1) if unknown is not None else float(not ids)


def make_text_swaps(subject: Subject, texts: Sequence[str] | None) -> Iterator[Swap] | None:
    """Sentences of the text that was given, or that the model was trained on; None if there is neither."""
    given = texts if texts is not None else subject.texts
    if given is not None:
        return _swaps(subject, [(None, line.strip()) for text in given for line in text.split("\n") if line.strip()])
    return None if subject.pairs is None else _swaps(subject, subject.pairs)


def _swaps(subject: Subject, sentences: Sequence[tuple[str | None, str]]) -> Iterator[Swap]:
    """Sentences with two words swapped; after those, what is too short for that, with two tokens swapped."""
    for source, text in sentences:
        words = text.split()
        if SHORTEST <= len(words) <= LONGEST:
            i, j = _two_longest(words)
            words[i], words[j] = words[j], words[i]
            other = " ".join(words)
            before, after = _ids(subject, text), _ids(subject, other)
            # Words that a tokenizer does not know look all the same to it.
            if before != after and _fits(subject, before, after):
                yield Swap(before, after, text, other, _read(subject, source))
    for source, text in sentences:
        if len(text.split()) < SHORTEST:
            yield from _tokens_swapped(subject, text, _read(subject, source))


def _fits(subject: Subject, *texts: Sequence[int]) -> bool:
    """Whether the model reads as many tokens as each of these texts has."""
    return subject.max_length is None or all(len(text) <= subject.max_length for text in texts)


def _read(subject: Subject, source: str | None) -> list[int] | None:
    return None if source is None else list(subject.source_tokenizer(source)["input_ids"])


def _two_longest(words: Sequence[str]) -> tuple[int, int]:
    """The places of the two longest different words, none of which ends in punctuation if that can be had."""
    order = sorted(range(len(words)), key=lambda place: (not words[place].isalpha(), -len(words[place]), place))
    first = order[0]
    second = next((place for place in order[1:] if words[place] != words[first]), order[1])
    return first, second


def _tokens_swapped(subject: Subject, text: str, source: list[int] | None) -> Iterator[Swap]:
    ids = encode_bare(subject.tokenizer, text)
    if len(ids) < 2 or ids[0] == ids[-1]:
        return
    before, after = find_special_tokens(subject.tokenizer, subject.start_token)
    other = [ids[-1], *ids[1:-1], ids[0]]
    if _fits(subject, [*before, *ids, *after]):
        reads = str(subject.tokenizer.decode(other))
        yield Swap([*before, *ids, *after], [*before, *other, *after], text, reads, source)


def _ids(subject: Subject, text: str) -> list[int]:
    before, after = find_special_tokens(subject.tokenizer, subject.start_token)
    return [*before, *encode_bare(subject.tokenizer, text), *after]
