"""Overrides of one scheme among several: ``position.kinds.local.base``, ``position.decoder.layers[0].left``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clockhands.errors import UsageError, describe_unknown, show_value
from clockhands.options import convert, options_of, parse
from clockhands.runs.recipe.keys import SIDES
from clockhands.schemes import CATALOGUE

__all__ = ["is_part", "set_in_part"]

_INDEXED = r"\.(?:layers|schemes)\[\d+\]"
PART = re.compile(
    rf"position(?:\.(?:{'|'.join(SIDES)}))?(?:\.kinds\.[^.\[]+(?:{_INDEXED})?|{_INDEXED}(?:\.schemes\[\d+\])?)"
)
"""A dotted name of one scheme among several: ``position.encoder.layers[0]``, ``position.kinds.local.schemes[1]``."""


def is_part(table: str) -> bool:
    """Return whether a dotted name is that of one scheme among several, or of a kind of layer."""
    return PART.fullmatch(table) is not None


def set_in_part(position: dict[str, Any], table: str, key: str, value: Any, *, written: bool) -> None:
    """Set an option of one scheme among several of ``[position]``; with ``written`` the value is text, parsed first.

    Raises UsageError for a part that is not there, and for an option that its scheme does not have.
    """
    place: Any = {"position": position}
    for name in _list_steps(table):
        place = _enter(place, name, table, key)
    known = {} if "scheme" not in place else _list_options(place["scheme"])
    if key in ("scheme", "schemes"):
        place.clear()
    elif "scheme" not in place:
        example = f"{table}.schemes[0].{key}"
        raise UsageError(f"cannot set '{table}.{key}': {table} has several schemes; say which, as in {example}")
    elif known and key not in known:
        unknown = describe_unknown(f"option of {place['scheme']}", key, known)
        raise UsageError(f"cannot set '{table}.{key}': {unknown}")
    type_ = known[key].type if key in known else Any
    place[key] = convert(parse(value, type_) if written else value, type_)


def _list_options(scheme: Any) -> Mapping[str, Any]:
    """Return the options of a scheme by name; none for an unknown scheme, which validation reports."""
    scheme_class = CATALOGUE.find(scheme)
    return {} if scheme_class is None else options_of(scheme_class)


def _list_steps(table: str) -> Iterator[str | int]:
    """Yield the keys and indices of a dotted name in their order."""
    for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", table):
        yield name if name else int(number)


def _enter(place: Any, name: str | int, table: str, key: str) -> Any:
    """Return what stands under a key or an index; the name of a scheme there becomes its table ``{scheme = ...}``."""
    missing = UsageError(f"cannot set '{table}.{key}': there is no {name!r} in {show_value(place)}")
    if isinstance(name, int):
        if not isinstance(place, list) or name >= len(place):
            raise missing
        if isinstance(place[name], str):
            place[name] = {"scheme": place[name]}
        return place[name]
    if not isinstance(place, dict) or name not in place:
        raise missing
    if isinstance(place[name], tuple):
        place[name] = list(place[name])
    if isinstance(place[name], str):
        place[name] = {"scheme": place[name]}
    return place[name]
