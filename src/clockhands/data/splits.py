"""Text as a corpus: pairs of sentences, or documents, in named splits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, overload

from clockhands.data.kinds import Morphemes
from clockhands.data.population import Pair, Population
from clockhands.errors import UsageError, describe_unknown

Task: TypeAlias = Literal["translation", "language modelling"]
ITEMS: dict[Task, str] = {"translation": "pairs", "language modelling": "documents"}
Fact: TypeAlias = str | float | int | bool


Items: TypeAlias = Sequence[Pair] | Sequence[str]
"""What a split holds: pairs for translation, documents for language modelling. One split never mixes them."""


T = TypeVar("T")


class Made(Sequence[T]):
    """Items that are made when they are asked for, such as sentences of numbers, which take long to spell.

    ``find``: returns what they are made of, when the first is asked for. ``make``: makes one of them.
    """

    def __init__(self, find: Callable[[], Sequence[Any]], make: Callable[[Any], T]) -> None:
        self.find, self.make = find, make

    @cached_property
    def parts(self) -> Sequence[Any]:
        """What the items are made of."""
        return self.find()

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> list[T]: ...

    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self.make(part) for part in self.parts[place]]
        return self.make(self.parts[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Corpus:
    """Text in named splits: ``train``, mostly ``validation`` and ``test``, and any others.

    ``task`` says what a split holds: ``translation`` a list of ``Pair``, ``language modelling`` a list of documents
    (``str``).
    ``facts`` are measured or counted numbers, such as how many items a split has.
    ``morphemes`` makes the closed lists of the two sides, for a tokenizer of kind ``morpheme``; most corpora have none.
    ``populations``: what the pairs were drawn from, to compute the order-blind ceiling; the first one is taken whose
    ceiling can be computed with the tokenizers.
    ``redraw``: gives other items for ``train``, as many and by the same law, that a number decides; None where there
    are no more (``redrawing.py``).
    """

    name: str
    task: Task
    splits: Mapping[str, Items]
    description: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    morphemes: Callable[[], tuple[Morphemes, Morphemes]] | None = None
    populations: tuple[Population, ...] = ()
    redraw: Callable[[int], Items] | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __contains__(self, split: object) -> bool:
        return split in self.splits

    def __getitem__(self, split: str) -> Items:
        """Return the items of one split. Raises UsageError with the names there are."""
        if split not in self.splits:
            raise UsageError(f"corpus {self.name!r}: {describe_unknown('split', split, self.splits)}")
        return self.splits[split]

    def pairs(self, split: str) -> list[Pair]:
        """Return the pairs of one split. Raises UsageError in a corpus for language modelling."""
        return [item for item in self._of_task(split, "translation") if isinstance(item, Pair)]

    def documents(self, split: str) -> list[str]:
        """Return the documents of one split. Raises UsageError in a translation corpus."""
        return [item for item in self._of_task(split, "language modelling") if isinstance(item, str)]

    def sources(self, split: str) -> list[str]:
        """Return the source side of one split."""
        return [pair.source for pair in self.pairs(split)]

    def targets(self, split: str) -> list[str]:
        """Return the target side of one split."""
        return [pair.target for pair in self.pairs(split)]

    def texts(self, split: str) -> list[str]:
        """Return everything written in one split, sources before targets: what a shared tokenizer learns from."""
        if self.task == "language modelling":
            return self.documents(split)
        return self.sources(split) + self.targets(split)

    @property
    def items(self) -> str:
        """What a split holds, as messages call it: ``pairs`` or ``documents``."""
        return ITEMS[self.task]

    def _of_task(self, split: str, task: Task) -> Items:
        if self.task != task:
            needs = "pairs of source and target" if task == "translation" else "documents"
            raise UsageError(f"corpus {self.name!r} is for {self.task}; this needs one that holds {needs}")
        return self[split]


FEWEST_ITEMS = 20
"""Of fewer, a draw with replacement leaves out so much that it is hardly a text like the whole."""


def redraw_training(corpus: Corpus, number: int) -> Items:
    """Return another draw of the training split, of the same size, that ``number`` decides; the corpus stays as it is.

    Raises UsageError for a text of fewer than ``FEWEST_ITEMS`` documents or pairs that cannot be drawn anew.
    """
    if corpus.redraw is not None:
        return corpus.redraw(number)
    items = corpus["train"]
    if len(items) < FEWEST_ITEMS:
        raise UsageError(
            f"corpus {corpus.name!r} has {len(items)} {corpus.items} to train on, too few to draw another text from "
            f"them by training.text_seed: at least {FEWEST_ITEMS} are needed. Cut the text into smaller ones (as "
            "data.unit = 'paragraph' does for plain text), or leave training.text_seed out"
        )
    rng = random.Random(f"redrawn:{number}")
    return rng.choices(items, k=len(items))  # type: ignore[return-value]
