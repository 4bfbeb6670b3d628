"""Flags from fields: the options of a command are a dataclass, and its flags are made of annotations and docstring.

::

    @dataclass(frozen=True, kw_only=True)
    class Options(Device):
        \"\"\"What the command can be told.

        Args:
            run: the folder of a trained run
            beam: search with a beam of N translations
        \"\"\"

        run: Annotated[str, POSITIONAL]
        beam: Annotated[Count, "N"] = 1             # --beam N, checked as every option is; the default is told

The texts in ``Annotated`` are the flag's own name, where it begins with ``--``, and what stands for its value.
"""

from __future__ import annotations

import argparse
import shlex
import typing
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from clockhands.errors import UsageError
from clockhands.options import Option, check_value, convert, options_of, parse

Options = TypeVar("Options")


class _FlagMark(Enum):
    """What else an annotation says of a flag."""

    POSITIONAL = "no flag, but a word in its place"
    REPEATED = "a flag that is given once for each value"


POSITIONAL, REPEATED = _FlagMark.POSITIONAL, _FlagMark.REPEATED


@cache
def read_as(type_: Any) -> Callable[[str], Any]:
    """Return the function with which argparse reads an option of this type; it refuses values out of the range."""

    def read(written: str) -> Any:
        value = convert(parse(written, type_), type_)
        faults = check_value("the value", value, type_)
        if faults:
            raise argparse.ArgumentTypeError(faults[0])
        return value

    return read


def declare(parser: argparse.ArgumentParser, kind: type) -> None:
    """Declare a flag for each field of a dataclass: its own first, then those of the classes that it inherits from.

    A class with a ``GROUP`` has its flags under that heading.
    """
    known = dict(options_of(kind))
    for owner in kind.__mro__:
        own = [name for name in vars(owner).get("__annotations__", {}) if name in known]
        place: Any = parser.add_argument_group(vars(owner)["GROUP"]) if "GROUP" in vars(owner) else parser
        for name in own:
            _add_flag(place, known.pop(name))


def read_options(parser: argparse.ArgumentParser, kind: type[Options], words: Sequence[str] | None) -> Options:
    """Read words into a dataclass whose flags were declared. What is not given has the default of its field."""
    # Options may stand between the words: `clockhands translate runs/tour --beam 4 "zwei"`.
    values = {name: value for name, value in vars(parser.parse_intermixed_args(words)).items() if value is not None}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def write_command(verb: str, options: Any, leave_out: Iterable[str] = ()) -> str:
    """Return the command that does the same again: every option whose value is not its default."""
    words = ["clockhands", verb]
    known = options_of(type(options)).values()
    for option in sorted(known, key=lambda option: POSITIONAL not in _read_annotation(option.type)[1]):
        value, (_, marks) = getattr(options, option.name), _read_annotation(option.type)
        if option.name in leave_out or value in (None, ()) or value == option.default:
            continue
        flag = _name_flag(option)
        parts = value if isinstance(value, tuple) else [value]
        shown = [f"{part:.17g}" if isinstance(part, float) else str(part) for part in parts]
        if POSITIONAL in marks:
            words += shown
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif REPEATED in marks:
            words += [word for part in shown for word in (flag, part)]
        else:
            words += [flag, *shown]
    return shlex.join(words)


def list_given(options: Any, names: Iterable[str]) -> list[str]:
    """Return the flags of those options whose values are not their defaults; the name of a word in its place."""
    known = options_of(type(options))
    changed = [known[name] for name in names if getattr(options, name) != known[name].default]
    marks = {option.name: _read_annotation(option.type)[1] for option in changed}
    return [option.name if POSITIONAL in marks[option.name] else _name_flag(option) for option in changed]


def refuse_several(options: Any, names: Iterable[str], what: str) -> None:
    """Raise UsageError if several of these options are given, each of which says ``what``."""
    flags = list_given(options, names)
    if len(flags) > 1:
        raise UsageError(f"{' and '.join(flags)} each say {what}; give one of them")


def _read_annotation(type_: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type of a flag's value, and what its annotation says besides."""
    if typing.get_origin(type_) is not Annotated:
        return type_, ()
    inner, *marks = typing.get_args(type_)
    own = tuple(mark for mark in marks if isinstance(mark, (str, _FlagMark)))
    # A range stays a part of the type.
    return (type_, own) if len(own) < len(marks) else (inner, own)


def _name_flag(option: Option) -> str:
    """Return the name of an option's flag: ``--max-length`` for ``max_length``, unless the annotation says another."""
    texts = [mark for mark in _read_annotation(option.type)[1] if isinstance(mark, str)]
    return next((text for text in texts if text.startswith("--")), f"--{option.name.replace('_', '-')}")


def _add_flag(place: Any, option: Option) -> None:
    """Declare the flag, or the word in its place, of one option; a default is told where the help does not."""
    type_, marks = _read_annotation(option.type)
    help_ = option.meaning.rstrip(".").replace("%", "%%")
    if option.default not in (None, False, (), "") and not option.required and "default" not in help_:
        help_ += f" (default: {option.default})"
    members = [part for part in typing.get_args(type_) if part is not type(None)] or [type_]
    base = members[0] if type(None) in typing.get_args(type_) and len(members) == 1 else type_
    settings: dict[str, Any] = {"help": help_, "dest": option.name, "default": None}
    metavar = next((mark for mark in marks if isinstance(mark, str) and not mark.startswith("--")), None)
    if metavar is not None:
        settings["metavar"] = metavar
    if base is bool:
        settings["action"] = argparse.BooleanOptionalAction if option.default is None else "store_true"
    elif typing.get_origin(base) is Literal:
        settings["choices"] = typing.get_args(base)
    elif typing.get_origin(base) is tuple:
        settings |= {"action": "append"} if REPEATED in marks else {"nargs": "+", "action": "extend"}
    elif base is not str:
        settings["type"] = read_as(base)
    if POSITIONAL not in marks:
        place.add_argument(_name_flag(option), **settings)
        return
    for name in ("dest", "action"):
        settings.pop(name, None)
    if typing.get_origin(base) is tuple:
        settings["nargs"] = "+" if option.required else "*"
    elif not option.required:
        settings["nargs"] = "?"
    place.add_argument(option.name, **settings)
