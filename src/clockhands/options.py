"""The one reader of options: what a function or dataclass can be told, and whether a value that somebody wrote fits.

An *option* is a field of a dataclass, or a keyword-only parameter of a function or of a class's constructor. Its
annotation is all that is known of it: the type, and with ``Annotated[int, Range(least=1)]`` the range. Schemes,
transforms, corpora, plans and the command line are read with these functions, which need no other package; the tables
of recipes and models are dataclasses that pydantic validates by the same annotations (``clockhands.settings``)::

    options_of(RoPE)["base"]                   # Option("base", float, 10000.0, "θ: ...")
    values, faults = check_options({"bsae": 1}, options_of(RoPE), "rope")
    faults                                     # ["unknown option of rope 'bsae'; did you mean 'base'?"]
    parse("2e3", int)                          # 2000.0, as a person writes it after --set; convert makes it 2000
    describe(Literal["pre", "post"])           # "one of 'pre', 'post'"
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import importlib
import inspect
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeAlias, TypeVar

from clockhands.errors import ArgumentError, ConfigError, describe_unknown, show_value

P = ParamSpec("P")
R = TypeVar("R")
LARGEST = 2**63 - 1
"""The largest whole number that an option takes: what PyTorch and TOML hold in 64 bits."""
LARGEST_SEED = 2**32 - 1
"""NumPy's older generators, which transformers seeds too, take no larger one."""


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes, as a part of its annotation: ``Annotated[float, Range(above=0)]``."""

    least: int | float | None = None
    above: int | float | None = None
    most: int | float | None = None
    below: int | float | None = None

    # pydantic reads a range as the bounds of annotated_types, a package that it brings: two lines of its protocol.
    __is_annotated_types_grouped_metadata__ = True

    def __iter__(self) -> Iterator[Any]:
        """Yield the bounds as pydantic reads them."""
        from annotated_types import Interval

        yield from Interval(ge=self.least, gt=self.above, le=self.most, lt=self.below)

    def __contains__(self, value: int | float) -> bool:
        """Tell whether a number is within the range."""
        low = (self.least is None or value >= self.least) and (self.above is None or value > self.above)
        return low and (self.most is None or value <= self.most) and (self.below is None or value < self.below)

    def __str__(self) -> str:
        """Return the range in words: ``from 1 to 8``, ``at least 1``, ``above 0 and below 1``."""
        if self.least is not None and self.most is not None:
            return f"from {self.least:,} to {self.most:,}"
        if self.least is not None and self.below is not None:
            return f"from {self.least:,} to below {self.below:,}"
        bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None) or "any number"


Count: TypeAlias = Annotated[int, Range(least=1)]
FromTwo: TypeAlias = Annotated[int, Range(least=2)]
Positive: TypeAlias = Annotated[float, Range(above=0)]
AtLeastOne: TypeAlias = Annotated[float, Range(least=1)]
NotNegative: TypeAlias = Annotated[float, Range(least=0)]
FromZero: TypeAlias = Annotated[int, Range(least=0)]
"""A whole number from 0 on, such as the index of a coordinate."""
Share: TypeAlias = Annotated[float, Range(least=0, below=1)]
"""A part of a whole, such as a probability of dropout: from 0 on, below 1."""
Fraction: TypeAlias = Annotated[float, Range(least=0, most=1)]
"""A part of a whole that may be all of it."""
Seed: TypeAlias = Annotated[int, Range(least=0, most=LARGEST_SEED)]
"""What every generator of random numbers takes."""


_UNIONS = (typing.Union, types.UnionType)
_SEQUENCES = (tuple, list, collections.abc.Sequence)
_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
_WORDS |= {type(None): "none", None: "none", Any: "anything"}
_PLURALS = {"a whole number": "whole numbers", "a number": "numbers", "text": "texts", "a path": "paths"}


def check_value(name: str, value: Any, type_: Any) -> list[str]:
    """Return the sentence about a value that does not fit (its name, the value, what it must be), or nothing."""
    if not fits(value, type_):
        return [f"{name} is {show_value(value)}, but must be {explain_unusable(value) or describe(type_)}"]
    ranges = []
    for part in _list_members(type_):
        bounds = next((extra for extra in getattr(part, "__metadata__", ()) if isinstance(extra, Range)), None)
        ranges += [bounds] if fits(value, part) else []
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
        return not explain_unusable(value)
    if origin is Literal:
        return value in typing.get_args(type_)
    if origin in _UNIONS:
        return any(fits(value, part) for part in typing.get_args(type_))
    if origin in _SEQUENCES:
        return isinstance(value, (tuple, list)) and all(fits(item, _get_item_type(type_)) for item in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, collections.abc.Mapping) and not explain_unusable(value)
    if type_ in (int, float):
        number = (int, float) if type_ is float else int
        return isinstance(value, number) and not isinstance(value, bool) and not explain_unusable(value)
    if type_ is None:
        return value is None
    return isinstance(type_, type) and isinstance(value, type_) and not explain_unusable(value)


def convert(value: Any, type_: Any) -> Any:
    """Return the value as the annotated type wants it; unchanged where nothing is to be done.

    A list for a tuple, 1 for 1.0 and 1000 for 1e3, also inside a list, and "none", which stands for TOML's missing
    null, for None.
    """
    parts = [_strip_annotation(part) for part in _list_members(type_)]
    choices = [value for part in parts if typing.get_origin(part) is Literal for value in typing.get_args(part)]
    if value == "none" and type(None) in parts and "none" not in choices:
        return None
    if isinstance(value, (list, tuple)):
        sequence = next((part for part in parts if typing.get_origin(part) in _SEQUENCES), None)
        items = value if sequence is None else [convert(item, _get_item_type(sequence)) for item in value]
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
    if typing.get_origin(type_) in (*_SEQUENCES, collections.abc.Iterable):
        item = describe(_get_item_type(type_))
        return f"a list of {_PLURALS.get(item, item)}"
    if typing.get_origin(type_) is collections.abc.Mapping:
        return "a table"
    if typing.get_origin(type_) is collections.abc.Callable:
        return "a function"
    return str(_WORDS.get(type_) or getattr(type_, "__name__", type_))


def takes_path(type_: Any) -> bool:
    """Tell whether an option takes the path of a file."""
    return type_ is Path or any(takes_path(part) for part in typing.get_args(type_))


def _get_item_type(type_: Any) -> Any:
    """Return the type of what a list, tuple or sequence holds: ``int | str`` for ``tuple[int, str]``."""
    types_ = tuple(part for part in typing.get_args(type_) if part is not Ellipsis)
    return typing.Union[types_] if types_ else Any  # noqa: UP007


def _strip_annotation(type_: Any) -> Any:
    """Return a type without what ``Annotated`` adds to it."""
    return typing.get_args(type_)[0] if typing.get_origin(type_) is Annotated else type_


def _list_members(type_: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return typing.get_args(type_) if typing.get_origin(type_) in _UNIONS else (type_,)


def explain_unusable(value: Any) -> str:
    """Return what to give in place of a value that no option takes, or that holds such a value; empty for any other."""
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if isinstance(value, int) and not -LARGEST - 1 <= value <= LARGEST:
        return "a whole number of at most 64 bits"
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)):
        return "text in Unicode without NUL"
    parts = (*value.keys(), *value.values()) if isinstance(value, collections.abc.Mapping) else ()
    items = parts or (value if isinstance(value, (list, tuple)) else ())
    return next((fault for item in items if (fault := explain_unusable(item))), "")


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
    _, meanings = read_docstring(owner)
    if dataclasses.is_dataclass(owner):
        # A dataclass has the fields of those that it inherits from, whose docstrings say what they mean.
        for base in inspect.getmro(typing.cast(type, owner))[1:]:
            meanings = {**read_docstring(base)[1], **meanings}
        hints = typing.get_type_hints(owner, include_extras=True)
        defaults = {}
        for field in dataclasses.fields(owner):
            made = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            defaults[field.name] = MISSING if made is dataclasses.MISSING else made
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


def defaults_of(options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the defaults of the options that have one."""
    return {name: option.default for name, option in options.items() if not option.required}


def read_docstring(owner: Any) -> tuple[str, dict[str, str]]:
    """Return the prose of a docstring, and what its ``Args:`` say of each parameter.

    Parameters that are described together stand before one colon: ``low, high: the ends of the interval.``
    """
    text = inspect.cleandoc(owner.__doc__ or "").partition("\nExamples:\n")[0]
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


def parse(written: str, type_: Any = Any) -> Any:
    """Return a value as a person writes it after ``--set name=``: TOML where the type takes that, else the text itself.

    ``training.max_steps=2000`` is a number, ``position.scheme=rope`` and ``data.source=2024`` (a file) are text, and
    ``training.report_to=tensorboard`` is a list of one. What does not fit is returned all the same, to be refused by
    ``check_value``.
    """
    try:
        table = tomllib.loads(f"value = {written}")
        value = table["value"] if len(table) == 1 else written
    except (ValueError, RecursionError):
        # No TOML, an integer of more digits than Python reads, or lists in lists in lists.
        value = {"True": True, "False": False}.get(written, written)
    if type_ is Any or fits(convert(value, type_), type_):
        return value
    if fits(written, type_):
        return written
    takes_numbers = fits(0.5, type_)
    if isinstance(value, str) and takes_numbers and re.fullmatch(r"[-+]?(\d+\.|\.\d+)", written.strip()):
        return float(written)  # .5 and 5. are no numbers in TOML
    return [value] if fits(convert([value], type_), type_) else value


def check_call(function: Callable[P, R], later: str = "") -> Callable[P, R]:
    """Return the function behind a check of its arguments, by the names and types of its signature.

    A call raises ArgumentError, with what is wrong about each argument: missing, unknown, or of another type.
    ``later``: the module of the types that the function's own imports for type checkers alone.
    """
    parameters = inspect.signature(function).parameters
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    places = [name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    rest = next((name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), None)

    @functools.wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        names = vars(importlib.import_module(later)) if later else None
        hints, faults = typing.get_type_hints(function, localns=names, include_extras=True), []
        if len(args) > len(places):
            faults.append(f"{len(args)} values were given by position, and it takes {', '.join(places)} so")
        values = dict(zip(places, args, strict=False))
        faults += [f"{name} stands twice, by position and by name" for name in named if name in values]
        values |= named
        for name, value in values.items():
            if name not in parameters and rest is None:
                faults.append(describe_unknown("argument", name, parameters))
            elif name in hints and name != rest and not _is_of_type(value, hints[name]):
                faults.append(f"{name} is {show_value(value)}, but must be {describe(hints[name])}")
        needed = [name for name in parameters if parameters[name].default is MISSING and name != rest]
        faults += [f"{name} is missing ({describe(hints[name])})" for name in needed if name not in values]
        if faults:
            raise ArgumentError(f"{function.__name__}: " + "; ".join(faults))
        return function(*args, **named)

    return checked


def _is_of_type(value: Any, type_: Any) -> bool:
    """Return whether a function may be called with a value for a parameter of this type.

    Other than an option, it may be any object: a number of numpy, a function, and what can be gone through like a list.
    """
    type_ = _strip_annotation(getattr(type_, "array_type", type_))  # a tensor of whatever shape: its reader says more
    origin = typing.get_origin(type_)
    if origin in _UNIONS:
        return any(_is_of_type(value, part) for part in typing.get_args(type_))
    if origin in (*_SEQUENCES, collections.abc.Iterable):
        is_list = isinstance(value, collections.abc.Iterable) and not isinstance(value, (str, bytes, Mapping, Path))
        items = value if isinstance(value, (list, tuple)) else ()
        return is_list and all(_is_of_type(item, _get_item_type(type_)) for item in items)
    if type_ is Any or (origin is not None and origin is not Literal):
        return type_ is Any or isinstance(value, origin)
    number = value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
    return isinstance(value, type_) if type_ not in _WORDS and isinstance(type_, type) else fits(number, type_)


def split_outside(text: str, mark: str) -> list[str]:
    """Split a text at a mark, but not inside brackets: ``a, f(b, c)`` has two parts between commas."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def read_assignments(written: Iterable[str], source: str = "--set") -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a dict of texts; what is written later wins.

    Raises ConfigError, in the name of ``source``, for every text without an equals sign.
    """
    written = list(written)
    faults = [f"{text!r} is not of the form KEY=VALUE" for text in written if "=" not in text]
    if faults:
        raise ConfigError(faults, source)
    return {key.strip(): value.strip() for key, _, value in (text.partition("=") for text in written)}
