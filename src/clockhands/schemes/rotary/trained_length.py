"""The trained length as an option of schemes: which need it, where in a position it is missing, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from clockhands.errors import ConfigError
from clockhands.schemes.rotary.spectra import NEEDS, SPECTRA

LENGTHS = ("fope", "dual-chunk")
"""Schemes that need ``original_length``, as some spectra of ``rope`` do."""
WINDOWS = {"rerope": 2, "self-extend": 4}
"""Schemes that need ``original_length`` unless ``window`` is given, which else is that over this number."""
SIDES = ("encoder", "decoder")
"""Keys of a position whose tables take from the position what they do not say themselves."""

Completion = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]
"""A function that takes the name of a scheme and all its options, and returns options to add to them."""


def add_trained_length(table: Any, length: int, *, only_needed: bool = False) -> Any:
    """Return a position with the trained length for each scheme that has the option and does not give it.

    ``table`` is a position, or a list of layers or of schemes; anything else comes back as it is. ``only_needed``: a
    scheme that gives its window instead stays as it is. Otherwise it has the length too, with which its window is
    compared; where it gives None for the length, which then is not known, it stays as it is.
    """

    def find(scheme: Any, options: Mapping[str, Any]) -> Mapping[str, Any]:
        has_window = scheme in WINDOWS and options.get("window") is not None
        lacks = "original_length" in _list_missing_options(scheme, options)
        needless = not lacks or (has_window and (only_needed or "original_length" in options))
        return {} if needless else {"original_length": length}

    return _complete_position(table, find)


def lacks_trained_length(table: Any) -> bool:
    """Return whether a scheme of a position needs the trained length, and does not give it."""
    return bool(add_trained_length(table, 1, only_needed=True) != table)


def _list_missing_options(scheme: Any, options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options without which a scheme cannot be built, or its window not be checked.

    Options of a spectrum are those of ``rope``, where no scheme is named.
    """
    if scheme in (*LENGTHS, *WINDOWS):
        return ["original_length"] if options.get("original_length") is None else []
    spectrum = options.get("spectrum")
    if scheme not in (None, "rope") or not isinstance(spectrum, str) or spectrum not in SPECTRA:
        return []
    fields = dataclasses.fields(SPECTRA[spectrum])
    return [f.name for f in fields if f.default is dataclasses.MISSING and options.get(f.name) is None]


def _complete_position(
    table: Any, find: Completion, scheme: Any = None, common: Mapping[str, Any] | None = None
) -> Any:
    """Return a position with what ``find`` adds to the options of each scheme in it.

    ``scheme``, ``common``: the scheme and the options of the table around this one, which hold here too: in a side, and
    in options that are written in a table of their own. Layers, kinds of layers and parts of a composition have none
    but their own.
    """
    if isinstance(table, (list, tuple)):
        return type(table)(_complete_entry(entry, find) for entry in table)
    if not isinstance(table, Mapping):
        return table
    own = table.get("scheme", scheme)
    inner = table.get("options")
    inner = dict(inner) if isinstance(inner, Mapping) else None
    whole = {**(common or {} if own == scheme else {}), **(inner or {}), **table}
    added = find(own, whole)
    whole |= added
    completed = {key: _complete_value(key, value, find, own, whole) for key, value in table.items()}
    if inner is None:
        return {**completed, **added}
    return {**completed, "options": {**completed["options"], **added}}


def _complete_value(key: str, value: Any, find: Completion, scheme: Any, whole: Mapping[str, Any]) -> Any:
    """Complete what stands under a key of a table of ``scheme``, whose options are ``whole``."""
    kinds = whole.get("kinds")
    if key in SIDES:
        return _complete_entry(value, find, scheme, whole)
    if key == "cross":
        return _complete_entry(value, find)
    if key == "kinds" and isinstance(value, Mapping):
        return {name: _complete_entry(entry, find) for name, entry in value.items()}
    if key == "layers" and isinstance(value, (list, tuple)) and isinstance(kinds, Mapping):
        # The name of a kind of layer is that kind, also where it is the name of a scheme.
        return type(value)(
            entry if isinstance(entry, str) and entry in kinds else _complete_entry(entry, find) for entry in value
        )
    return _complete_position(value, find) if isinstance(value, (list, tuple, Mapping)) else value


def _complete_entry(entry: Any, find: Completion, scheme: Any = None, common: Mapping[str, Any] | None = None) -> Any:
    """Complete a table, or the name of a scheme, which stays a name where nothing is added."""
    if not isinstance(entry, str):
        return _complete_position(entry, find, scheme, common)
    added = find(entry, {})
    return {"scheme": entry, **added} if added else entry


def require_trained_length(scheme: str, length: int | None) -> int:
    """Return the trained length. Raises ConfigError where it is not given."""
    if length is None:
        sentence = f"{scheme}.original_length is not given, and {scheme} needs it: {NEEDS['original_length']}"
        raise ConfigError([f"{sentence}; write it as in original_length = 512"], "the scheme")
    return length


def choose_window(scheme: str, window: int | None, length: int | None) -> int:
    """Return the window of a scheme: the one that is given, or else the share of the trained length that it has.

    Raises ConfigError where neither is given, and for a window that is not below a trained length that is.
    """
    if window is None and length is None:
        share = {2: "half", 4: "a quarter"}[WINDOWS[scheme]]
        sentence = f"{scheme}.window is not given, and neither is original_length, of which it would be {share}"
        advice = f"{NEEDS['original_length']}, as in original_length = 512; or write the window itself, below that"
        raise ConfigError([f"{sentence}: write {advice}"], "the scheme")
    if window is None:
        return max(1, (length or 0) // WINDOWS[scheme])
    if length is not None and window >= length:
        sentence = f"{scheme}.window is {window}, but must be below the trained length, original_length = {length}"
        raise ConfigError([f"{sentence}: texts as long as that would be read as plain RoPE reads them"], "the scheme")
    return window
