"""The options of a function, class or dataclass, read from its signature and docstring, and values for them checked."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from clockhands.errors import describe_unknown
from clockhands.options.annotations import check_value, convert, describe

MISSING = inspect.Parameter.empty
"""The default of an option that must be given."""


@dataclass(frozen=True)
class Option:
    """One option: its name, annotated type, default (``MISSING`` if it must be given), and what the docstring says."""

    name: str
    type: Any
    default: Any = MISSING
    meaning: str = ""

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING


def options_of(owner: Callable[..., Any]) -> Mapping[str, Option]:
    """Return the options of a function, class or dataclass by name, in the order of its signature."""
    return _read_options(owner)


@cache
def _read_options(owner: Any) -> Mapping[str, Option]:
    """Read the options of an owner, once for each."""
    _, meanings = read_docstring(owner)
    if dataclasses.is_dataclass(owner):
        # A dataclass has the fields of those that it inherits from, whose docstrings say what they mean.
        for base in inspect.getmro(typing.cast(type, owner))[1:]:
            meanings = {**read_docstring(base)[1], **meanings}
        hints = typing.get_type_hints(owner, include_extras=True)
        defaults = {field.name: _get_default(field) for field in dataclasses.fields(owner)}
    else:
        called = owner.__init__ if inspect.isclass(owner) else owner
        hints = typing.get_type_hints(called, include_extras=True)
        parameters = inspect.signature(called).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    options: dict[str, Option] = {}
    for name, default in defaults.items():
        options[name] = Option(name, hints.get(name, Any), default, meanings.get(name, ""))
        if hasattr(hints.get(name), "kinds"):
            options |= _flatten(options[name])
    return types.MappingProxyType(options)


def _flatten(option: Option) -> dict[str, Option]:
    """Return the options that stand for a value with options of its own: the name of its kind, and those beside it.

    Its type has the kinds by name: ``kinds()``. ``spectrum=YaRN(factor=4.0)`` is written ``spectrum = "yarn"`` and
    ``factor = 4.0``; what is left at None is as the kind itself has it.
    """
    kinds: Mapping[str, type] = option.type.kinds()
    default = next(name for name, kind in kinds.items() if isinstance(option.default, kind))
    flat = {option.name: Option(option.name, typing.Literal[tuple(kinds)], default, option.meaning)}
    takers: dict[str, list[str]] = {}
    for kind_name, kind in kinds.items():
        for name, own in _read_options(kind).items():
            takers.setdefault(name, []).append(f"``{kind_name}``")
            flat[name] = Option(name, own.type | None, None, f"{own.meaning} For {', '.join(takers[name])}.")
    return flat


def _get_default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a dataclass's field; ``MISSING`` where it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return MISSING if field.default is dataclasses.MISSING else field.default


def defaults_of(options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the defaults of the options that have one."""
    return {name: option.default for name, option in options.items() if not option.required}


def read_docstring(owner: Any) -> tuple[str, dict[str, str]]:
    """Return the prose of a docstring, and what its ``Args:`` say of each parameter.

    Parameters that are described together stand before one colon: ``low, high: the ends of the interval.``
    """
    text = inspect.cleandoc(owner.__doc__ or "").partition("\nExample:\n")[0]
    prose, _, rest = text.partition("\nArgs:\n")
    block = re.split(r"\n(?=\S)", rest)[0]
    meanings: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \w)", "\n" + block):
        names, colon, meaning = entry.strip().partition(":")
        if colon:
            meanings |= {name.strip(): " ".join(meaning.split()) for name in names.split(",")}
    return " ".join(prose.split()), meanings


def check_options(
    values: Mapping[str, Any],
    options: Mapping[str, Option],
    owner: str,
    *,
    prefix: str | None = None,
    noun: str | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Return the values that fit, converted as their options want them, and everything wrong, one sentence each.

    ``owner`` is whose options they are, for messages. ``prefix`` stands before the name of an option (default:
    ``rope.`` of the owner rope); ``noun`` is what one is called (default: ``option of rope``).
    """
    prefix = f"{owner}." if prefix is None else prefix
    right, faults = {}, []
    for name, value in values.items():
        if name not in options:
            faults.append(describe_unknown(noun or f"option of {owner}", name, options))
            continue
        converted = convert(value, options[name].type)
        wrong = check_value(f"{prefix}{name}", converted, options[name].type)
        faults += wrong
        right.update({} if wrong else {name: converted})
    missing = [option for name, option in options.items() if option.required and name not in values]
    return right, faults + [f"{prefix}{option.name} is missing ({describe(option.type)})" for option in missing]
