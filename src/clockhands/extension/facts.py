"""Facts to be found again in a text: how they are written for a tokenizer, at which depths, and what is asked.

- *passkey*: the wrong values do not stand in the text.
- *recall*: the wrong values are those of the other names, so a model that only knows which values there were is at
  chance (multi-query associative recall; Arora et al. 2023).
- *tracking*: facts whose value is the name of another fact; asked for is the value at the end of the chain.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from clockhands.data.corpora.facts import NAMES, VALUES
from clockhands.errors import DataError
from clockhands.extension.reading import Stream, get_answer_ids
from clockhands.models import LanguageModel

NAME = "{name}"
PLAIN = ("", "", "\n")
FORMATS = (
    ("@", "", "\n"),
    ("@", "", NAME + "\n"),
    PLAIN,
    ("", ":", "\n"),
    ("", " is", ".\n"),
    ("The code of", " is", ".\n"),
)
"""What stands before a name, between it and the value, and after the value; the first two are of the corpus *facts*.

``NAME`` stands for the name once more.
"""
FEWEST = 12
"""Names, and values, that a probe needs."""


@dataclass(frozen=True)
class Writing:
    """How facts are written for one tokenizer: the tokens before a name, between name and value, after the value.

    ``again``: whether the name stands after the value once more. ``answer``: what a question ends with, at the place of
    the value (``get_answer_ids``).
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    again: bool
    example: str
    answer: tuple[int, ...] = ()

    @classmethod
    def of(cls, model: LanguageModel, form: tuple[str, str, str]) -> Writing:
        """Make the writing of one of ``FORMATS``."""
        before, between, after = (tuple(_encode(model, part.removeprefix(NAME))) for part in form)
        again = form[2].startswith(NAME)
        example = f"{form[0]} hazel{form[1]} amber{form[2].replace(NAME, ' hazel')}".strip()
        return cls(before, between, after, again, example, get_answer_ids(model))

    def state(self, name: int, value: int) -> list[int]:
        """Return the tokens of a fact."""
        return [*self.before, name, *self.between, value, *([name] if self.again else []), *self.after]

    def ask(self, name: int) -> list[int]:
        """Return the tokens of a fact up to its value, which is asked for."""
        return [*self.before, name, *self.between, *self.answer]

    @property
    def size(self) -> int:
        """The tokens of a fact."""
        return len(self.state(0, 0))


def find_words(model: LanguageModel, seed: int = 0) -> tuple[list[int], list[int]]:
    """Return the tokens that serve as names and as values, each one token.

    They are words that the tokenizer has whole; where it has few, other tokens of letters. Raises DataError where
    there are too few of these, too.
    """
    names, values = ([token for word in words for token in _whole(model, word)] for words in (NAMES, VALUES))
    if min(len(names), len(values)) >= FEWEST:
        return names, values
    letters = list(_list_letter_tokens(model))
    random.Random(seed).shuffle(letters)
    half = min(len(letters) // 2, 40)
    if half < FEWEST:
        raise DataError(
            f"the tokenizer of {model.source} has {len(letters)} tokens of letters, and facts need {2 * FEWEST}"
        )
    return letters[:half], letters[half : 2 * half]


def _encode(model: LanguageModel, text: str) -> Sequence[int]:
    ids: list[int] = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    return [token for token in ids if token != model.tokenizer.unk_token_id]


def _whole(model: LanguageModel, word: str) -> list[int]:
    """Return the token of a word after a space, where it is one token; else none."""
    ids = model.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
    return list(ids) if len(ids) == 1 and ids[0] != model.tokenizer.unk_token_id else []


def _list_letter_tokens(model: LanguageModel) -> Iterator[int]:
    """Yield the tokens that are letters alone, the longest words first, at most some thousands."""
    special = set(model.tokenizer.all_special_ids)
    tokens = sorted(set(model.tokenizer.get_vocab().values()) - special)
    texts = ((token, model.tokenizer.decode([token]).strip()) for token in tokens[:20_000])
    words = [(token, text) for token, text in texts if text.isascii() and text.isalpha()]
    yield from (token for token, text in sorted(words, key=lambda pair: (-min(len(pair[1]), 4), pair[0])))


DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where the facts that are asked for stand: 0 is the beginning of the text."""
TASKS = ("passkey", "recall", "tracking")
FACTS = {"recall": 6, "tracking": 3}
"""Facts of a text; of *tracking*, chains of two."""
WRONG = 15
"""Wrong values of *passkey*."""


@dataclass(frozen=True)
class FactQuestion:
    """A name that is asked for, with the right value and wrong ones, and the depth of the fact."""

    task: str
    name: int
    right: int
    wrong: tuple[int, ...]
    depth: float


@dataclass(frozen=True)
class Item:
    """One text: facts with the depth at which each stands, and what is asked of it."""

    facts: tuple[tuple[float, int, int], ...]
    questions: tuple[FactQuestion, ...]


def make_items(model: LanguageModel, tasks: Sequence[str], count: int, seed: int) -> list[list[Item]]:
    """Make ``count`` texts of each kind that these tasks need; passkey and recall are asked of the same ones."""
    names, values = find_words(model)
    made = []
    for number, (kind, kinds) in enumerate(((_make_recall, ("passkey", "recall")), (_make_tracking, ("tracking",)))):
        rng = np.random.default_rng([seed, number])
        items = [kind(rng, names, values, text) for text in range(count)]
        kept = [
            Item(item.facts, tuple(question for question in item.questions if question.task in tasks)) for item in items
        ]
        made += [kept] if any(task in tasks for task in kinds) else []
    return made


def _make_recall(rng: np.random.Generator, names: Sequence[int], values: Sequence[int], text: int) -> Item:
    """Make a text with a fact at each of ``DEPTHS``, which are asked for, and more that are not."""
    count = FACTS["recall"]
    chosen = [int(name) for name in rng.choice(names, count, replace=False)]
    drawn = [int(value) for value in rng.choice(values, min(count + WRONG, len(values)), replace=False)]
    stated, absent = drawn[:count], tuple(drawn[count:])
    depths = [*DEPTHS, *(float(share) for share in rng.uniform(0.02, 0.98, count - len(DEPTHS)))]
    questions = []
    for name, right, depth in zip(chosen, stated, DEPTHS, strict=False):
        others = tuple(value for value in stated if value != right)
        questions += [
            FactQuestion("passkey", name, right, absent, depth),
            FactQuestion("recall", name, right, others, depth),
        ]
    return Item(tuple(zip(depths, chosen, stated, strict=True)), tuple(questions))


def _make_tracking(rng: np.random.Generator, names: Sequence[int], values: Sequence[int], text: int) -> Item:
    """Make a text with chains that end at depths taken in turn."""
    count = FACTS["tracking"]
    chosen = [int(name) for name in rng.choice(names, 2 * count, replace=False)]
    ends = [int(value) for value in rng.choice(values, count, replace=False)]
    facts, questions = [], []
    for chain, right in enumerate(ends):
        first, second = chosen[2 * chain : 2 * chain + 2]
        depth = DEPTHS[(text + 2 * chain) % len(DEPTHS)]
        facts += [(0.7 * depth, first, right), (depth, second, first)]
        questions.append(FactQuestion("tracking", second, right, tuple(end for end in ends if end != right), depth))
    return Item(tuple(facts), tuple(questions))


def lay_out(item: Item, filler_S: Stream, writing: Writing, length: int, start: Sequence[int]) -> list[int]:
    """Return the tokens of a text without its question: filler with the facts at their depths.

    With a question it has ``length`` tokens. The filler ends with the same tokens at every length. Without facts it
    fills the whole text.
    """
    room = length - len(start) - len(writing.ask(0)) - len(item.facts) * writing.size
    body = filler_S[len(filler_S) - max(room, 0) :].tolist()
    ids, done = list(start), 0
    for depth, name, value in sorted(item.facts):
        here = int(depth * len(body))
        ids += body[done:here] + writing.state(name, value)
        done = here
    return [*ids, *body[done:]]


def lay_out_all(
    items: Sequence[Item], fillers: Sequence[Stream], writing: Writing, length: int, start: Sequence[int]
) -> list[list[int]] | None:
    """Return the tokens of all texts; None where the facts leave no room."""
    rows = [lay_out(item, filler, writing, length, start) for item, filler in zip(items, fillers, strict=True)]
    return rows if {len(row) for row in rows} == {length - len(writing.ask(0))} else None


def spread_fillers(stream: Stream, count: int, length: int) -> Iterable[Stream]:
    """Yield pieces of the stream, evenly spread; a stream that is too short is repeated."""
    long = np.resize(stream, max(len(stream), 2 * length))
    return (long[end - length : end] for end in np.linspace(length, len(long), count).astype(int))
