"""What a runtime is: a program that gives the log-probability of every token of a text, given those before it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from clockhands.catalogue import Catalogue
from clockhands.errors import UsageError

Texts = Sequence[Sequence[int]]
Offer = Literal["together", "right", "left", "positions", "begin", "chunk", "reuse", "shift"]


@dataclass(frozen=True)
class Way:
    """How a runtime is to read texts. The scores of a correct one do not depend on it, as long as positions may shift.

    ``together``: all texts in one batch, with pads on the ``side`` where their lengths differ; otherwise one by one.
    ``pads``: so many more pads before or after each. ``positions``: those of the tokens of a text, in place of 0, 1, …
    ``chunk``: so many tokens in one call, those before them in the KV cache; 0 reads the whole text in one call.
    ``reuse``: the runtime may use its prefix cache. ``shift``: keys in the KV cache are moved on by so many positions
    in the middle of a text, as a runtime does that drops the beginning of a long dialogue.
    """

    together: bool = False
    side: Literal["right", "left"] = "right"
    pads: int = 0
    positions: tuple[int, ...] | None = None
    chunk: int = 0
    reuse: bool = False
    shift: int = 0


WHOLE = Way()


class Runtime(Protocol):
    """A model in a program that runs it.

    ``offers`` names the fields of a ``Way`` that it can honour: "left" and "right" are sides of a batch, "positions"
    are any, "begin" those that follow each other from any first one. ``engine`` is the program with its version,
    ``limit`` the longest text as far as that is known.
    """

    name: str
    engine: tuple[str, str]
    vocabulary: int
    limit: int | None
    offers: frozenset[Offer]

    def score(self, texts: Texts, way: Way = WHOLE) -> list[list[float]]:
        """Return the log-probability of every token but the first of each text, given those before it."""
        ...


class Opener(Protocol):
    """How one kind of runtime is recognised by a name, without opening it, and opened."""

    def recognises(self, name: str) -> bool:
        """Return whether the name is that of such a runtime."""
        ...

    def open(self, name: str, model: str | None = None) -> Runtime:
        """Open it; ``model`` is the name of the model at a server that has several."""
        ...


RUNTIMES: Catalogue[Opener] = Catalogue("runtime", modules=("clockhands.checking.runtimes.programs",))


def find_opener(name: str) -> Opener | None:
    """Return what opens a name as a runtime; None for a name that is none: a folder, a hub name, an architecture."""
    return next((opener for opener in RUNTIMES.values() if opener.recognises(name)), None)


def import_engine(package: str, install: str, purpose: str) -> Any:
    """Import the package of an engine. Raises UsageError, which says what to install, where it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UsageError(
            f"{purpose} needs the package {install}, which is not installed: pip install 'clockhands[engines]'"
        ) from None
