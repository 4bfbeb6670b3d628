"""Options of RoPE's spectrum that files leave out: what older ones meant by that, and where the trained length goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from clockhands.schemes.rotary.spectra import SPECTRA

__all__ = ["add_trained_length", "complete_saved_position", "lacks_trained_length"]

OLDER_DEFAULTS = {"factor": 1.0, "original_length": 2048}
"""What a file means that gives a spectrum without these options, which had these defaults when it was written."""
LENGTH_OF_LLAMA3 = 8192
"""The same for ``original_length`` of the spectrum ``llama3``."""


def lacks_trained_length(options: Mapping[str, Any]) -> bool:
    """Return whether options name a spectrum that needs the trained length, and do not give it."""
    return "original_length" in _list_missing(options)


def add_trained_length(table: Any, length: int, scheme: Any = None) -> Any:
    """Return a position with the trained length in each table whose spectrum needs it and has none.

    ``table`` is a position, or a part of it: a side, a kind of layer, a list of layers or of schemes; anything else
    comes back as it is. ``scheme``: the one that the table has where it names none itself.
    """
    if isinstance(table, (list, tuple)):
        return [add_trained_length(entry, length) for entry in table]
    if not isinstance(table, Mapping):
        return table
    scheme, has_length = table.get("scheme", scheme), table.get("original_length") is not None
    # What a table says holds for the tables in it too: a side, and options that are written in a table of their own.
    completed = {
        key: value if has_length else add_trained_length(value, length, scheme) for key, value in table.items()
    }
    missing = scheme == "rope" and lacks_trained_length(table)
    return {**completed, "original_length": length} if missing else completed


def complete_saved_position(table: Any) -> Any:
    """Return a position as a run saved it, on each of its sides, with the options that older files left out.

    ``table`` is a table of options, or one that holds others (``options``, a side); anything else comes back as it is.
    """
    if not isinstance(table, Mapping):
        return table
    completed = {key: complete_saved_position(value) for key, value in table.items()}
    older = {**OLDER_DEFAULTS, **({"original_length": LENGTH_OF_LLAMA3} if table.get("spectrum") == "llama3" else {})}
    return {**completed, **{name: older[name] for name in _list_missing(table)}}


def _list_missing(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options that the spectrum needs and that are not given."""
    spectrum = options.get("spectrum")
    if not isinstance(spectrum, str) or spectrum not in SPECTRA:
        return []
    fields = dataclasses.fields(SPECTRA[spectrum])
    return [f.name for f in fields if f.default is dataclasses.MISSING and options.get(f.name) is None]
