"""Every way to get a corpus, by name. A function's keyword-only parameters are its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from clockhands.catalogue import Catalogue
from clockhands.data.corpora import numbers, roles, stdlib
from clockhands.data.hub import huggingface
from clockhands.data.pairs import Corpus
from clockhands.data.sources import parallel, table, text
from clockhands.errors import ConfigError, unknown
from clockhands.schemes.catalogue import Option, misfits

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


def corpus_options(name: str) -> dict[str, Option]:
    """The options of a corpus by name. Raises UsageError for an unknown corpus."""
    parameters = inspect.signature(CORPORA[name], eval_str=True).parameters.values()
    return {option.name: Option(option.name, option.annotation, option.default) for option in parameters}


def open_corpus(name: str, **options: Any) -> Corpus:
    """The corpus with these options: ``open_corpus("numbers", source="fr")``.

    Raises UsageError for an unknown corpus, ConfigError with everything wrong about the options at once, and what the
    corpus itself raises.
    """
    known = corpus_options(name)
    faults = [unknown("option", option, known) for option in options if option not in known]
    faults += [
        fault for option in options if option in known for fault in misfits(option, options[option], known[option].kind)
    ]
    faults += [
        f"option {option!r} is missing"
        for option in known
        if known[option].default is inspect.Parameter.empty and option not in options
    ]
    if faults:
        raise ConfigError(faults, f"corpus {name!r}")
    return CORPORA[name](**options)
