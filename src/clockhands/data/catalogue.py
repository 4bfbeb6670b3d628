"""Every way to get a corpus, by name. A module of ``corpora`` adds its corpus with the decorator ``corpus``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from clockhands.catalogue import Catalogue, get_first_sentence
from clockhands.data.kinds import TokenKind
from clockhands.data.splits import Corpus, Task
from clockhands.errors import ConfigError
from clockhands.options import Option, check_options, options_of

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
