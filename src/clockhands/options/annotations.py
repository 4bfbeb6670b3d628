"""Whether a value is one of an annotated type, what it becomes there, and how the type is described."""

from __future__ import annotations

import collections.abc
import math
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

from clockhands.errors import show_value
from clockhands.options.ranges import LARGEST, Range

_UNIONS = (typing.Union, types.UnionType)
_SEQUENCES = (tuple, list, collections.abc.Sequence)
_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    Path: "a path",
    type(None): "none",
    None: "none",
    Any: "anything",
}
_PLURALS = {"a whole number": "whole numbers", "a number": "numbers", "text": "texts", "a path": "paths"}


def check_value(name: str, value: Any, type_: Any) -> list[str]:
    """Return the sentence about a value that does not fit (its name, the value, what it must be), or nothing."""
    if not fits(value, type_):
        return [f"{name} is {show_value(value)}, but must be {_explain_unusable(value) or describe(type_)}"]
    ranges = [bounds for part, bounds in _list_ranges(type_) if fits(value, part)]
    if ranges and not any(bounds is None or value in bounds for bounds in ranges):
        return [f"{name} is {show_value(value)}, but must be {ranges[0]}"]
    return []


def fits(value: Any, type_: Any) -> bool:
    """Tell whether a value is one of an annotated type, whatever its range (a whole number passes for float).

    By rule, for every option of every table: a number is finite and fits into 64 bits, and a text holds no NUL.
    """
    type_ = _strip_annotation(type_)
    origin = typing.get_origin(type_)
    if type_ is Any:
        return not _explain_unusable(value)
    if origin is Literal:
        return value in typing.get_args(type_)
    if origin in _UNIONS:
        return any(fits(value, part) for part in typing.get_args(type_))
    if origin in _SEQUENCES:
        return isinstance(value, (tuple, list)) and all(fits(item, get_item_type(type_)) for item in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, collections.abc.Mapping) and not _explain_unusable(value)
    if type_ in (int, float):
        number = (int, float) if type_ is float else int
        return isinstance(value, number) and not isinstance(value, bool) and not _explain_unusable(value)
    return (type_ is None and value is None) or (
        isinstance(type_, type) and isinstance(value, type_) and not _explain_unusable(value)
    )


def convert(value: Any, type_: Any) -> Any:
    """Return the value as the annotated type wants it; unchanged where nothing is to be done.

    A list for a tuple, 1 for 1.0 and 1000 for 1e3, also inside a list, and "none", which stands for TOML's missing
    null, for None.
    """
    parts = [_strip_annotation(part) for part in _list_members(type_)]
    if value == "none" and type(None) in parts and not any(_is_choice(part, "none") for part in parts):
        return None
    if isinstance(value, (list, tuple)):
        sequence = next((part for part in parts if typing.get_origin(part) in _SEQUENCES), None)
        items = value if sequence is None else [convert(item, get_item_type(sequence)) for item in value]
        return tuple(items) if typing.get_origin(sequence) is tuple or isinstance(value, tuple) else items
    if isinstance(value, int) and not isinstance(value, bool) and float in parts and int not in parts:
        return float(value) if fits(value, int) else value
    if isinstance(value, float) and int in parts and float not in parts and value.is_integer():
        return int(value)
    return value


def describe(type_: Any) -> str:
    """Return a type in words: ``one of 'half', 'interleaved'``, ``a whole number or none``."""
    type_ = _strip_annotation(type_)
    if typing.get_origin(type_) is Literal:
        return "one of " + ", ".join(repr(value) for value in typing.get_args(type_))
    if typing.get_origin(type_) in _UNIONS:
        return " or ".join(dict.fromkeys(describe(part) for part in typing.get_args(type_)))
    if typing.get_origin(type_) in _SEQUENCES:
        item = describe(get_item_type(type_))
        return f"a list of {_PLURALS.get(item, item)}"
    if typing.get_origin(type_) is collections.abc.Mapping:
        return "a table"
    return str(_WORDS.get(type_) or getattr(type_, "__name__", type_))


def takes_path(type_: Any) -> bool:
    """Tell whether an option takes the path of a file."""
    return type_ is Path or any(takes_path(part) for part in typing.get_args(type_))


def get_item_type(type_: Any) -> Any:
    """Return the type of what a list, tuple or sequence holds: ``int | str`` for ``tuple[int, str]``."""
    types_ = tuple(part for part in typing.get_args(type_) if part is not Ellipsis)
    return typing.Union[types_] if types_ else Any  # noqa: UP007


def _strip_annotation(type_: Any) -> Any:
    """Return a type without what ``Annotated`` adds to it."""
    return typing.get_args(type_)[0] if typing.get_origin(type_) is Annotated else type_


def _list_members(type_: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return typing.get_args(type_) if typing.get_origin(type_) in _UNIONS else (type_,)


def _list_ranges(type_: Any) -> list[tuple[Any, Range | None]]:
    """Return each member of a union with the range that its annotation gives."""
    return [
        (part, next((extra for extra in getattr(part, "__metadata__", ()) if isinstance(extra, Range)), None))
        for part in _list_members(type_)
    ]


def _is_choice(type_: Any, value: str) -> bool:
    """Tell whether a value is one of the choices of a ``Literal``."""
    return typing.get_origin(type_) is Literal and value in typing.get_args(type_)


def _explain_unusable(value: Any) -> str:
    """Return what to give in place of a value that no option takes, or that holds such a value; empty for any other."""
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if isinstance(value, int) and not -LARGEST - 1 <= value <= LARGEST:
        return "a whole number of at most 64 bits"
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)):
        return "text in Unicode without NUL"
    parts = (*value.keys(), *value.values()) if isinstance(value, collections.abc.Mapping) else ()
    items = parts or (value if isinstance(value, (list, tuple)) else ())
    return next((fault for item in items if (fault := _explain_unusable(item))), "")
