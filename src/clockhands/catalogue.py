"""One catalogue type: objects by name, for schemes, checks, corpora, engines, measures and studies.

::

    SHAPES = Catalogue("shape", {"round": Circle, "flat": import_later("shapes.flat", "Square")})
    SHAPES["round"]                          # Circle; an unknown name raises UnknownNameError with the nearest
    SHAPES["flat"]                           # shapes.flat is imported now
    SHAPES["mine"] = Hexagon                 # an entry of one's own
    list(SHAPES); "round" in SHAPES          # names, without importing anything
    SHAPES.listing()                         # {"round": "first sentence of its docstring", ...}

A catalogue whose entries register themselves names the package that holds them, whose ``__init__`` calls
``import_modules(__name__)``; a new module there is a new entry, and no list names it::

    CHECKS = Catalogue("check", modules=("clockhands.checking.checks",))

    @CHECKS.register("causality.future")
    def future(subject): ...
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from clockhands.errors import UsageError, describe_unknown, show_value

T = TypeVar("T")
Entry = TypeVar("Entry")


class UnknownNameError(UsageError, KeyError):
    """A catalogue has no entry of this name; the message names the nearest. It is a KeyError, which mappings raise."""

    # KeyError shows its argument in quotes.
    __str__ = Exception.__str__


@dataclass(frozen=True)
class Lazy(Generic[T]):
    """An entry that is made the first time it is asked for, by calling ``make``."""

    make: Callable[[], T]


def import_later(module: str, name: str) -> Lazy[Any]:
    """Return an entry that is ``name`` of ``module``, imported the first time it is asked for."""
    return Lazy(lambda: getattr(importlib.import_module(module), name))


class Catalogue(MutableMapping[str, T]):
    """Objects by name, in the order in which they were added.

    Args:
        noun: what an entry is, for messages: ``unknown scheme 'ropee'; did you mean 'rope'?``.
        entries: the objects, or ``Lazy`` ones.
        modules: modules or packages that register entries when they are imported; they are imported the first time
            that the catalogue is read.
        describe: returns one sentence about an entry; by default the first sentence of its docstring.
        meant: returns the names of the entries that another name stands for, which then are suggested.
    """

    def __init__(
        self,
        noun: str,
        entries: Mapping[str, T | Lazy[T]] | None = None,
        *,
        modules: Sequence[str] = (),
        describe: Callable[[T], str] | None = None,
        meant: Callable[[str], Sequence[str]] | None = None,
    ) -> None:
        self.noun = noun
        self._describe = describe or get_first_sentence
        self._meant = meant
        self._entries: dict[str, T | Lazy[T]] = dict(entries or {})
        self._modules = list(modules)

    def __getitem__(self, name: object) -> T:
        """Return the entry of a name. Raises UnknownNameError, which names the nearest."""
        self._fill()
        # The name may come from a file, and be a list, which a dict cannot look up.
        if not isinstance(name, str) or name not in self._entries:
            raise UnknownNameError(self.describe_unknown_name(name))
        entry = self._entries[name]
        if isinstance(entry, Lazy):
            entry = self._entries[name] = entry.make()
        return entry

    def __setitem__(self, name: str, entry: T | Lazy[T]) -> None:
        """Add an entry, or replace the one of that name."""
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        """Remove an entry. Raises UnknownNameError."""
        if name not in self:
            raise UnknownNameError(self.describe_unknown_name(name))
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        self._fill()
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        self._fill()
        return isinstance(name, str) and name in self._entries

    def __repr__(self) -> str:
        return f"Catalogue({self.noun!r}, {list(self)})"

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that adds what it decorates. Raises ValueError for a name that is taken."""

        def add(entry: Entry) -> Entry:
            if name in self._entries:
                raise ValueError(f"there are two entries {name!r} in the catalogue of every {self.noun}")
            self._entries[name] = entry  # type: ignore[assignment]
            return entry

        return add

    def find(self, name: object) -> T | None:
        """Return the entry of a name, or None where there is none; also for what is no text."""
        if name not in self:
            return None
        return self[name]

    def describe_unknown_name(self, name: object) -> str:
        """Return the sentence about a name that is no entry: ``unknown scheme 'ropee'; did you mean 'rope'?``."""
        meant = self._meant(name) if self._meant is not None and isinstance(name, str) else ()
        if meant:
            return f"unknown {self.noun} {show_value(name)}; did you mean {' or '.join(map(repr, meant[:3]))}?"
        return describe_unknown(self.noun, name, self)

    def describe(self, name: str) -> str:
        """Return one sentence about an entry. Raises UnknownNameError."""
        return self._describe(self[name])

    def listing(self) -> dict[str, str]:
        """Return one sentence about every entry, by name."""
        return {name: self.describe(name) for name in self}

    def _fill(self) -> None:
        # A module that reads the catalogue while it is imported finds what is registered so far.
        while self._modules:
            importlib.import_module(self._modules.pop(0))


def import_modules(package: str) -> None:
    """Import every module of a package, in alphabetical order: called by its ``__init__``, so that all register."""
    paths = sys.modules[package].__path__
    for module in sorted(module.name for module in pkgutil.iter_modules(paths)):
        importlib.import_module(f"{package}.{module}")


def get_first_sentence(thing: object) -> str:
    """Return the first sentence of a docstring on one line, without its full stop; empty where there is none."""
    paragraph = (inspect.getdoc(thing) or "").partition("\n\n")[0]
    # "et al. 2017" goes on: a sentence ends before a capital.
    return re.split(r"\.\s+(?=[A-Z])", " ".join(paragraph.split()))[0].removesuffix(".")


def get_module_line(thing: object) -> str:
    """Return the first line of the docstring of the module that defines something; empty where there is none."""
    return (getattr(inspect.getmodule(thing), "__doc__", "") or "").strip().partition("\n")[0]
