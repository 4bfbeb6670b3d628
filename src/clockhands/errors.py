"""Errors that say what is wrong, with what value, where it came from, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

__all__ = [
    "BusyError",
    "CheckpointError",
    "ClockhandsError",
    "ClockhandsWarning",
    "ConfigError",
    "DataError",
    "Fault",
    "PositionError",
    "UsageError",
    "cut_long",
    "nearest",
    "shown",
    "unknown",
]


class ClockhandsError(Exception):
    """Something could not be done. The message is complete: the command line prints it and nothing else.

    ``exit_code`` is what a command ends with: 1 for a failure, 2 for wrong usage.
    """

    exit_code = 1


class UsageError(ClockhandsError):
    """What the user asked for cannot be: an unknown name, a value out of range, an impossible combination."""

    exit_code = 2


class Fault(str):
    """A sentence about a configuration that cannot be, with the ``keys`` whose values together make it so.

    ``Fault("num_heads is 3, which does not divide d_model 64", "num_heads", "d_model")`` is printed as its sentence.
    """

    keys: tuple[str, ...]

    def __new__(cls, sentence: str, *keys: str) -> Fault:
        fault = super().__new__(cls, sentence)
        fault.keys = keys
        return fault


class ConfigError(UsageError):
    """A configuration has faults; all of them are reported together, one a line.

    ``faults`` are the sentences; one that follows from several keys together is a ``Fault``, which names them.
    """

    def __init__(self, faults: Sequence[str], source: str = "configuration") -> None:
        self.faults = tuple(map(cut_long, faults))
        self.source = source
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__(f"{source} has {count}:\n" + "\n".join(f"  - {fault}" for fault in self.faults))


class DataError(ClockhandsError):
    """A text, a table or a data set cannot be read as asked."""


class CheckpointError(ClockhandsError):
    """A saved model cannot be opened, is not understood, or does not fit."""


class BusyError(ClockhandsError):
    """Another process writes in a folder at the moment."""


class PositionError(UsageError):
    """A position lies outside what a scheme can encode, or has the wrong form."""


class ClockhandsWarning(UserWarning):
    """Something was done otherwise than one might think: text that was cut, left out, or read in another way."""


def cut_long(line: str, room: int = 1000) -> str:
    """Cut one line of a message to ``room`` characters: a damaged file may hold a name of many thousand."""
    return line if len(line) <= room else f"{line[: room - 100]}... ({len(line):,} characters)"


def shown(value: object, room: int = 100) -> str:
    """Return a value as a message shows it: as Python writes it, and no longer than ``room`` characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # Python refuses to write integers of more than 4,300 digits and tables nested a thousand deep.
        return f"a value of type {type(value).__name__}, too large to be written here"
    return text if len(text) <= room else f"{text[: room - 20]}... ({len(text):,} characters)"


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``; did you mean 'rope'?`` when a close name exists, else the list of choices, ready to append.

    Upper and lower case count as the same letter.
    """
    known = sorted(choices)
    folded = {choice.casefold(): choice for choice in known}
    close = difflib.get_close_matches(name[:100].casefold(), folded, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    return f"; choose one of {', '.join(known)}" if known else ""


def unknown(noun: str, name: object, choices: Iterable[str]) -> str:
    """Return the sentence for a name that is not known: ``unknown scheme 'ropee'; did you mean 'rope'?``."""
    return f"unknown {noun} {shown(name)}{nearest(name if isinstance(name, str) else '', choices)}"
