"""What a table of a recipe may hold, read from the dataclass or function it feeds; values checked and converted."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from clockhands.errors import unknown
from clockhands.schemes.catalogue import Option, describe, fits, misfits

MISSING = inspect.Parameter.empty


def fields_of(kind: type[Any]) -> dict[str, Option]:
    """The fields of a dataclass by name."""
    hints = typing.get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        made = field.default_factory
        default = made() if made is not dataclasses.MISSING else field.default
        found[field.name] = Option(
            field.name, hints[field.name], MISSING if default is dataclasses.MISSING else default
        )
    return found


def parameters_of(function: Callable[..., Any]) -> dict[str, Option]:
    """The keyword-only parameters of a function by name."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    keyword = [parameter for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    return {parameter.name: Option(parameter.name, parameter.annotation, parameter.default) for parameter in keyword}


def check(table: str, given: Mapping[str, Any], known: Mapping[str, Option]) -> tuple[dict[str, Any], list[str]]:
    """The values of a table that fit, as their fields want them, and everything wrong with it, one sentence each."""
    values, faults = {}, []
    for name, value in given.items():
        if name not in known:
            faults.append(unknown(f"key in [{table}]", name, known))
            continue
        converted = convert(value, known[name].kind)
        wrong = misfits(f"{table}.{name}", converted, known[name].kind)
        faults += wrong
        values.update({} if wrong else {name: converted})
    missing = [name for name, option in known.items() if option.default is MISSING and name not in given]
    return values, faults + [f"{table}.{name} is missing ({describe(known[name].kind)})" for name in missing]


def convert(value: Any, kind: Any) -> Any:
    """The value as the annotated type wants it: a list for a tuple, 1 for 1.0, 1000 for 1e3, "none" for None; else as
    it is."""
    parts = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    if value == "none" and type(None) in parts and not any(_lists(part, "none") for part in parts):
        return None
    if isinstance(value, list) and any(typing.get_origin(part) is tuple for part in parts):
        return tuple(value)
    if isinstance(value, int) and not isinstance(value, bool) and float in parts and int not in parts:
        return float(value) if fits(value, int) else value
    if isinstance(value, float) and int in parts and float not in parts and value.is_integer():
        return int(value)
    return value


def read_value(written: str, kind: Any = Any) -> Any:
    """A value as a person writes it after ``--set name=``: TOML where the field takes that, else the text itself.

    ``training.max_steps=2000`` is a number, ``position.scheme=rope`` and ``data.source=2024`` (a file) are text, and
    ``training.report_to=tensorboard`` is a list of one.
    """
    try:
        found = tomllib.loads(f"value = {written}")
        value = found["value"] if len(found) == 1 else written
    except (ValueError, RecursionError):
        # No TOML, an integer of more digits than Python reads, or lists in lists in lists.
        value = {"True": True, "False": False}.get(written, written)
    if kind is Any or fits(convert(value, kind), kind):
        return value
    if fits(written, kind):
        return written
    return [value] if fits(convert([value], kind), kind) else value


def is_path(kind: Any) -> bool:
    """Whether a field takes the path of a file."""
    return kind is Path or any(is_path(part) for part in typing.get_args(kind))


def _lists(kind: Any, value: str) -> bool:
    return typing.get_origin(kind) is Literal and value in typing.get_args(kind)
