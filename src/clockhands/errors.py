"""Errors that say what is wrong, with what value, where it came from, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class ClockhandsError(Exception):
    """Something failed. The message is complete: the command line prints it and nothing else.

    ``exit_code`` is the exit status of the command: 1 for a failure, 2 for wrong usage.
    """

    exit_code = 1


class UsageError(ClockhandsError):
    """What the user wants is impossible: an unknown name, a value out of range, options that exclude each other."""

    exit_code = 2


class ArgumentError(UsageError, TypeError):
    """A function or a class was called with an argument that it does not have, or with a value of another type."""


PLACE = "."
"""What pip installs Clockhands from: the folder of its checkout. On a package index it would be its name there."""


class MissingPackageError(UsageError, ImportError):
    """A package that only an extra of Clockhands brings is not installed.

    ``purpose``: what needs it, such as ``clockhands train``; ``extra``: the extra that brings it.
    """

    def __init__(self, purpose: str, package: str, extra: str = "workbench") -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. It comes with the extra {extra!r}: "
            f"in the folder of Clockhands run pip install '{PLACE}[{extra}]'"
        )


class Fault(str):
    """A sentence about what is wrong with a configuration, with the ``keys`` whose values together make it wrong.

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
        self.faults = tuple(map(cut_long_line, faults))
        self.source = source
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__(f"{source} has {count}:\n" + "\n".join(f"  - {fault}" for fault in self.faults))


def refuse(failed: object, sentence: str) -> None:
    """Raise ConfigError with this sentence, about a scheme, if what it says is so."""
    refuse_faults((failed, sentence))


def refuse_faults(*checks: tuple[object, str]) -> None:
    """Raise ConfigError, about a scheme, with the sentence of every check that is true, if any is.

    A check of a number is written ``not x > 0`` instead of ``x <= 0``: every comparison with NaN is false, and NaN must
    be refused.
    """
    faults = [sentence for failed, sentence in checks if failed]
    if faults:
        raise ConfigError(faults, "the scheme")


class DataError(ClockhandsError):
    """A text, a table, a data set or a file of settings cannot be read or written."""


class CheckpointError(ClockhandsError):
    """A saved model cannot be read or written, is not understood, or does not fit the recipe or the memory."""


class BusyError(ClockhandsError):
    """Another process is writing into a folder."""


class PositionError(UsageError):
    """A position lies outside what a scheme can encode, or has the wrong form."""


class ShortTextError(UsageError):
    """A text has fewer tokens than one of the windows in which it is to be read."""


class ClockhandsWarning(UserWarning):
    """Something was done in another way than a user may expect: text was cut, left out, or read in another way."""


def cut_long_line(line: str) -> str:
    """Cut one line of a message to 1,000 characters: a damaged file may hold a name of many thousand characters."""
    return line if len(line) <= 1000 else f"{line[:900]}... ({len(line):,} characters)"


def show_value(value: object, room: int = 100) -> str:
    """Return a value for a message: its ``repr``, cut to at most ``room`` characters."""
    try:
        text = " ".join(repr(value).split())  # arrays are shown on several lines
    except (ValueError, RecursionError):
        # Python refuses to write integers of more than 4,300 digits and tables nested a thousand deep.
        return f"a value of type {type(value).__name__}, too large to be written here"
    return text if len(text) <= room else f"{text[: room - 20]}... ({len(text):,} characters)"


def suggest_nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``; did you mean 'rope'?`` if a choice is close to ``name``, else a list of the choices.

    The result is appended to a message. Upper and lower case count as the same letter.
    """
    known = sorted(choices)
    # The dashes before an option are no likeness.
    folded = {choice.casefold().lstrip("-"): choice for choice in known}
    wanted = name[:100].casefold().lstrip("-")
    # A name that was begun is meant before one that merely looks like it: report_to for report, not export.
    begun = sorted((choice for choice in folded if len(wanted) > 2 and choice.startswith(wanted)), key=len)
    close = begun or difflib.get_close_matches(wanted, folded, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    return f"; choose one of {', '.join(known)}" if known else ""


def describe_unknown(noun: str, name: object, choices: Iterable[str]) -> str:
    """Return the sentence about a name that is not known, such as ``unknown scheme 'ropee'; did you mean 'rope'?``.

    ``noun`` says what the name stands for; the nearest of ``choices`` is suggested.
    """
    return f"unknown {noun} {show_value(name)}{suggest_nearest(name if isinstance(name, str) else '', choices)}"


def explain_overflow(source: str) -> str:
    """Return the sentence about a model whose logits are no numbers, from which nothing follows."""
    return f"{source} gives NaN or infinite logits; its weights may be damaged, or too large for --dtype"
