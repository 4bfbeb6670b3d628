"""The one check of numbers that a file gives, for every reader; and the command lines of other programs."""

from __future__ import annotations

import argparse
import math
import shlex
from typing import Any, NoReturn

from clockhands.errors import CheckpointError, UsageError, show_value

MOST_LAYERS = 2000
"""Layers of the largest model that is believed; each is listed."""
MOST_TOKENS = 10**12
"""The longest text, window or head that is believed."""


def check_number(value: Any, origin: str, source: str, least: float = -math.inf) -> float:
    """Return a number that a file gives. Raises CheckpointError unless it is one, finite, and at least ``least``."""
    try:
        known = not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        known = False
    if not known:
        raise CheckpointError(f"{source} sets {origin} = {show_value(value)}, which is not a finite number")
    if value < least:
        raise CheckpointError(f"{source} sets {origin} = {value:g}; it must be at least {least:g}")
    return float(value) if abs(value) > MOST_TOKENS else value


def check_count(value: Any, origin: str, source: str, least: int = 1, most: int = MOST_TOKENS) -> int:
    """Return a whole number that a file gives. Raises CheckpointError unless it is one, from ``least`` to ``most``."""
    number = check_number(value, origin, source, least)
    if number != int(number) or number > most:
        what = f"at most {most:,}" if number > most else "a whole number"
        raise CheckpointError(f"{source} sets {origin} = {show_value(value)}; it must be {what}")
    return int(number)


def check_layers(value: Any, origin: str, source: str) -> int:
    """Return a number of layers. Raises CheckpointError for one that no model has."""
    return check_count(value, origin, source, most=MOST_LAYERS)


class Flags(argparse.ArgumentParser):
    """Flags of another program: those about position are read, others are passed over."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{self.prog}: {message}")


def split_command(text: str, source: str) -> list[str]:
    """Return the words of a command line. Raises UsageError where a quote is not closed."""
    try:
        return shlex.split(text)
    except ValueError as fault:
        raise UsageError(f"{source} is no command line: {str(fault).lower()}") from fault
