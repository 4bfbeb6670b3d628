"""Every way to get a corpus, by name. A function's keyword-only parameters are its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clockhands.catalogue import Catalogue
from clockhands.data.corpora import numbers, roles, stdlib
from clockhands.data.hub import huggingface
from clockhands.data.pairs import Corpus
from clockhands.data.sources import parallel, table, text
from clockhands.errors import ConfigError
from clockhands.options import Option, check_options, options_of

CORPORA: Catalogue[Callable[..., Corpus]] = Catalogue(
    "corpus",
    {
        "numbers": numbers,
        "roles": roles,
        "stdlib": stdlib,
        "parallel": parallel,
        "table": table,
        "text": text,
        "huggingface": huggingface,
    },
)


def corpus_options(name: str) -> Mapping[str, Option]:
    """Return the options of a corpus by name. Raises UnknownNameError for an unknown corpus."""
    return options_of(CORPORA[name])


def open_corpus(name: str, **options: Any) -> Corpus:
    """Open the corpus with these options: ``open_corpus("numbers", source="fr")``.

    Raises UnknownNameError for an unknown corpus, ConfigError with everything wrong about the options at once, and what
    the corpus itself raises.
    """
    values, faults = check_options(options, corpus_options(name), name, prefix="")
    if faults:
        raise ConfigError(faults, f"corpus {name!r}")
    return CORPORA[name](**values)
