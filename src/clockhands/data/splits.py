"""Text as a corpus, pairs of sentences or documents in named splits; and every way to get one, by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, overload

from clockhands.catalogue import Catalogue, get_first_sentence
from clockhands.data.kinds import Morphemes, TokenKind
from clockhands.data.population import Pair, Population
from clockhands.errors import ConfigError, UsageError, describe_unknown
from clockhands.options import Option, check_options, options_of

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
    ``redraw``: gives other items for ``train``, as many and by the same law, that a number decides; None where it has
    no more than those, of which ``redraw_training`` then draws with replacement.
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


Opener = TypeVar("Opener", bound=Callable[..., Corpus])
TaskOf: TypeAlias = Callable[[Mapping[str, Any]], Task]


@dataclass(frozen=True)
class CorpusEntry:
    """How a corpus is opened, and what is known of it before its text is read.

    Args:
        open: the function that reads or makes it; its keyword-only parameters are the options.
        task: what a model learns from it; a function of the options where these decide.
        one_answer: whether every source has exactly one right translation, so that exact matches are counted.
        tokenizer: the kind of tokenizer for it where none is asked for; where that is ``morpheme``, the corpus has a
            closed list of them.
    """

    open: Callable[..., Corpus]
    task: Task | TaskOf
    one_answer: bool = False
    tokenizer: TokenKind = "bpe"

    @property
    def options(self) -> Mapping[str, Option]:
        """The options by name."""
        return options_of(self.open)

    def find_task(self, options: Mapping[str, Any]) -> Task:
        """Return the task of the corpus with these options."""
        return self.task(options) if callable(self.task) else self.task


CORPORA: Catalogue[CorpusEntry] = Catalogue(
    "corpus",
    modules=("clockhands.data.corpora", "clockhands.data.sources"),
    describe=lambda entry: get_first_sentence(entry.open),
)


def corpus(
    name: str, task: Task | TaskOf, *, one_answer: bool = False, tokenizer: TokenKind = "bpe"
) -> Callable[[Opener], Opener]:
    """Return a decorator that adds a function to the catalogue of corpora; see ``CorpusEntry``."""

    def register(function: Opener) -> Opener:
        CORPORA.register(name)(CorpusEntry(function, task, one_answer, tokenizer))
        return function

    return register


def find_task_of_columns(options: Mapping[str, Any]) -> Task:
    """Return the task of a table: language modelling if it names a column of text, else translation."""
    return "translation" if options.get("text") is None else "language modelling"


def corpus_options(name: str) -> Mapping[str, Option]:
    """Return the options of a corpus by name. Raises UnknownNameError for an unknown corpus."""
    return CORPORA[name].options


def open_corpus(name: str, **options: Any) -> Corpus:
    """Open the corpus with these options: ``open_corpus("numbers", source="fr")``.

    Raises UnknownNameError for an unknown corpus, ConfigError with everything wrong about the options at once, and what
    the corpus itself raises; ValueError if it is for another task than it declares.
    """
    values, faults = check_options(options, corpus_options(name), name, prefix="")
    if faults:
        raise ConfigError(faults, f"corpus {name!r}")
    opened, declared = CORPORA[name].open(**values), CORPORA[name].find_task(values)
    if opened.task != declared:
        raise ValueError(f"corpus {name!r} declares the task {declared!r}, and what it opened is for {opened.task!r}")
    return opened
