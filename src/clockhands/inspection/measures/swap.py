"""Does the model notice who bit whom? Two words of a short sentence change places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from clockhands.findings import Finding, Reference, Table
from clockhands.inspection.drawing import percent, percent_range, skip
from clockhands.inspection.estimators.intervals import bootstrap
from clockhands.inspection.measures.cause import CHANGED, relative, squared_distance
from clockhands.inspection.reading.windows import bare, frame
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Float, Tensor

QUESTION = "Does it notice who bit whom?"
METHOD = (
    "Short sentences against the same with two words swapped: built-in English ones such as 'Tom saw Anna', or, "
    "where a text was given or the training text is known, sentences of that text, in which the two longest words"
    " change places (in a text of single words, two of its tokens). Change of the mean last hidden state as "
    "above, one being the difference between two of the sentences. A model that does not know order gives exactly"
    " 0. Of a decoder the source stays as it was."
)
SOURCE = "the question is Vaswani et al.'s own reason for positions (2017, section 3.5)"
NOUNS = ("Tom", "a dog", "Anna", "the king", "my sister", "a wolf", "the doctor", "Peter")
VERBS = ("bit", "saw", "followed", "paid", "heard", "forgot")
SENTENCES, FEWEST = 24, 6
SHORTEST, LONGEST = 4, 20


@dataclass(frozen=True)
class Swap:
    """Token ids of a sentence before and after, how both read, and the source that a decoder is given."""

    before: list[int]
    after: list[int]
    text: str
    swapped: str
    source: list[int] | None = None


def swapped(subject: Subject, texts: Sequence[str] | None) -> Finding:
    """Two words of a short sentence swapped, in ``texts``, else in what it was trained on, else in English."""
    if subject.tokenizer is None:
        return skip("cause.swap", QUESTION, "Without a tokenizer there are no sentences to swap words in.")
    known = _own(subject, texts)
    swaps = list(_english(subject)) if known is None else list(islice(known, SENTENCES))
    if known is None and _unknown(subject, swaps) > 0.2:
        return skip(
            "cause.swap",
            QUESTION,
            "Its tokenizer does not know the words of the built-in English sentences; give a text of its own (--text).",
        )
    if len(swaps) < FEWEST:
        return skip("cause.swap", QUESTION, f"The text has only {len(swaps)} sentences with two words to swap.")
    before = torch.stack([_state(subject, swap.before, swap.source) for swap in swaps])
    after = torch.stack([_state(subject, swap.after, swap.source or swap.before) for swap in swaps])
    return _finding(swaps, before, after, "sentences of its own text" if known is not None else "English sentences")


def _finding(swaps: list[Swap], before: Tensor, after: Tensor, which: str) -> Finding:
    distance = squared_distance(before)
    if distance == 0.0:
        return skip(
            "cause.swap", QUESTION, "All sentences have the same output, so there is no distance to measure by."
        )
    change_N = relative((after - before).square().sum(-1), distance)
    value, (low, high) = float(change_N.mean()), bootstrap(change_N, torch.ones_like(change_N))
    notices = value > CHANGED
    verdict = (
        f"In {len(swaps)} {which}, swapping two words changes the mean of the output by {percent(value)} of the "
        f"squared distance between two sentences (95 % interval {percent_range(low, high)}; 0 would mean that order is "
        "not seen)."
    )
    return Finding(
        name="cause.swap",
        question=QUESTION,
        verdict=verdict
        if notices
        else "Swapping two words does not change the mean of the output: it does not show their order.",
        value=value,
        interval=(low, high),
        references=(Reference("order ignored", 0.0), Reference("another sentence", 1.0)),
        light="good" if notices else "bad",
        table=Table.of(
            ("sentence", "swapped", "change"),
            [(swap.text, swap.swapped, change) for swap, change in zip(swaps, change_N, strict=True)],
        ),
        method=METHOD,
        source=SOURCE,
    )


def _state(subject: Subject, ids: list[int], source: list[int] | None) -> Float[Tensor, " D"]:
    given = {"source_BS": torch.tensor([source])} if subject.looks_across and source is not None else {}
    return subject.forward(torch.tensor([ids]), **given)[-1][0].mean(0).float().cpu()


def _english(subject: Subject) -> Iterator[Swap]:
    for verb in VERBS:
        for a, b in zip(NOUNS[0::2], NOUNS[1::2], strict=True):
            first, second = f"{a} {verb} {b}.", f"{b} {verb} {a}."
            yield Swap(_ids(subject, first), _ids(subject, second), first, second)


def _unknown(subject: Subject, swaps: list[Swap]) -> float:
    """The share of tokens that the tokenizer has no word for."""
    unknown = getattr(subject.tokenizer, "unk_token_id", None)
    ids = [token for swap in swaps for token in bare(subject.tokenizer, swap.text)]
    return ids.count(unknown) / max(len(ids), 1) if unknown is not None else float(not ids)


def _own(subject: Subject, texts: Sequence[str] | None) -> Iterator[Swap] | None:
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
            if before != after:  # words that a tokenizer does not know look all the same to it
                yield Swap(before, after, text, other, _read(subject, source))
    for source, text in sentences:
        if len(text.split()) < SHORTEST:
            yield from _tokens_swapped(subject, text, _read(subject, source))


def _read(subject: Subject, source: str | None) -> list[int] | None:
    return None if source is None else list(subject.source_tokenizer(source)["input_ids"])


def _two_longest(words: Sequence[str]) -> tuple[int, int]:
    """The places of the two longest different words, none of which ends in punctuation if that can be had."""
    order = sorted(range(len(words)), key=lambda place: (not words[place].isalpha(), -len(words[place]), place))
    first = order[0]
    second = next((place for place in order[1:] if words[place] != words[first]), order[1])
    return first, second


def _tokens_swapped(subject: Subject, text: str, source: list[int] | None) -> Iterator[Swap]:
    ids = bare(subject.tokenizer, text)
    if len(ids) < 2 or ids[0] == ids[-1]:
        return
    before, after = frame(subject.tokenizer, subject.start)
    other = [ids[-1], *ids[1:-1], ids[0]]
    reads = subject.tokenizer.decode(other)
    yield Swap([*before, *ids, *after], [*before, *other, *after], text, str(reads), source)


def _ids(subject: Subject, text: str) -> list[int]:
    before, after = frame(subject.tokenizer, subject.start)
    return [*before, *bare(subject.tokenizer, text), *after]
