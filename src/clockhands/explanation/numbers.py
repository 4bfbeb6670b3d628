"""The one check of numbers that a file gives, and its settings, for every reader; and other programs' command lines."""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Mapping
from typing import Any, NoReturn

from clockhands.errors import CheckpointError, UsageError, show_value

POSITION = re.compile(
    "rope|rotary|window|chunk|interval|ntk|logn|yarn|theta|position|layer_types|layers_block|head_dim|kv_channels|freq|"
    "attn_layer|full_attn_idxs|attn_type_list|temperature|floor_scale|local|sliding|attention_scal|attn_scale|mscale|"
    "beta_(fast|slow)|scaling_beta|alibi|max_seq|context|n_ctx|relative|bucket|max_distance|pos_att|pos_emb|rel_pos|"
    "nope|pos_enc|bidirectional|is_causal|causal_mask|global_att|block_types|hybrid_"
)
"""What keys about position have in their names."""
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


def check_numbers(values: Any, origin: str, source: str) -> tuple[float, ...]:
    """Return a list of numbers that a file gives. Raises CheckpointError for what is none."""
    if not isinstance(values, (list, tuple)):
        raise CheckpointError(f"{source} sets {origin} = {show_value(values)}, which is not a list of numbers")
    return tuple(check_number(value, origin, source) for value in values)


def check_layers(value: Any, origin: str, source: str) -> int:
    """Return a number of layers. Raises CheckpointError for one that no model has."""
    return check_count(value, origin, source, most=MOST_LAYERS)


def check_kinds(kinds: Any, count: int, source: str) -> list[str]:
    """Return the kinds of the layers that a file lists. Raises CheckpointError where it does not list all."""
    if not isinstance(kinds, list) or len(kinds) < count:
        raise CheckpointError(f"{source} has {count} layers, and layer_types = {show_value(kinds)} does not list them")
    return [str(kind) for kind in kinds[:count]]


class Settings:
    """Settings of a file by their keys, checked; the keys that were asked for are remembered.

    ``prefix``: what stands before a key in messages. A ``key`` that is asked for may be several with ``|`` between
    them, of which the first counts that is set.
    """

    def __init__(self, values: Mapping[str, Any], source: str, prefix: str = "") -> None:
        self.values, self.source, self.prefix, self.used = values, source, prefix, set[str]()

    def get(self, key: str) -> Any:
        """Return a value as the file has it, None where it is not set."""
        names = key.split("|")
        self.used |= set(names)
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def number(self, key: str, default: float | None = None, least: float = -math.inf) -> float:
        """Return a number. Raises CheckpointError for what is none, and where there is neither it nor a default."""
        value, name = self.get(key), f"{self.prefix}{key.partition('|')[0]}"
        if value is not None:
            return check_number(value, name, self.source, least)
        if default is None:
            raise CheckpointError(f"{self.source} has no {name}")
        return default

    def count(self, key: str, default: int | None = None, least: int = 1) -> int | None:
        """Return a whole number, None where there is neither it nor a default. Raises CheckpointError for others."""
        value, name = self.get(key), f"{self.prefix}{key.partition('|')[0]}"
        return default if value is None else check_count(value, name, self.source, least)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers, empty where it is not set. Raises CheckpointError for what is none."""
        values = self.get(key)
        return () if values is None else check_numbers(values, f"{self.prefix}{key}", self.source)

    def table(self, name: str) -> Settings | None:
        """Return a table inside, None where it is not set. Raises CheckpointError for what is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise CheckpointError(f"{self.source} sets {name} = {show_value(value)}, which is not a table")
        return Settings(value, self.source, f"{name}.") if value else None

    def list_unread(self, others: re.Pattern[str]) -> tuple[tuple[str, str], ...]:
        """Return the keys about position that nothing asked for, with their values, but for the ``others``."""
        return tuple(
            (f"{self.prefix}{key}", show_value(value))
            for key, value in sorted(self.values.items())
            if POSITION.search(key) and key not in self.used and value is not None and not others.match(key)
        )


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
