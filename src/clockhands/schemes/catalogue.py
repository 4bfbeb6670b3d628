"""What the catalogue knows of a scheme, read from its constructor: sizes, options, and whether a value fits."""

from __future__ import annotations

import collections.abc
import inspect
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from clockhands.errors import ConfigError, shown, unknown
from clockhands.schemes.scheme import SIZES, Scheme

LARGEST = 2**63 - 1
"""The largest whole number that an option takes: what PyTorch and TOML hold in 64 bits."""
LARGEST_SEED = 2**32 - 1
"""NumPy's older generators, which transformers seeds too, take no larger one."""


@dataclass(frozen=True)
class Sizes:
    """What a model tells its schemes about itself; a constructor takes those of its positional parameters.

    ``width``: d_model where the encoding is added, d_p where it is concatenated. ``causal``: whether the attention that
    the scheme serves hides keys to the right of the query.
    """

    width: int
    d_model: int
    num_heads: int
    head_dim: int
    num_layers: int = 1
    causal: bool = True


@dataclass(frozen=True)
class Option:
    """One keyword-only parameter of a scheme: its name, annotated type and default."""

    name: str
    kind: Any
    default: Any


def options(scheme: type[Scheme]) -> dict[str, Option]:
    """The options of a scheme by name."""
    hints = typing.get_type_hints(scheme.__init__)
    return {
        name: Option(name, hints.get(name, Any), parameter.default)
        for name, parameter in inspect.signature(scheme.__init__).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def sizes(scheme: type[Scheme]) -> tuple[str, ...]:
    """The sizes that a scheme asks for, in order."""
    parameters = inspect.signature(scheme.__init__).parameters.values()
    asked = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and p.name != "self"]
    strange = [name for name in asked if name not in SIZES]
    if strange:
        raise TypeError(f"{scheme.__name__} takes {strange} by position; options are keyword-only, sizes are {SIZES}")
    return tuple(asked)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value read from TOML or a flag is one of an annotated type (int passes for float).

    By rule, for every option of every table: a number is finite and fits into 64 bits, and a text holds no NUL.
    """
    origin = typing.get_origin(kind)
    if kind is Any:
        return _sound(value)
    if origin is Literal:
        return value in typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in typing.get_args(kind))
    if origin in (tuple, list, collections.abc.Sequence):
        return isinstance(value, (tuple, list)) and all(fits(item, item_kind(kind)) for item in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, collections.abc.Mapping) and _sound(value)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and _sound(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and _sound(value)
    return (kind is None and value is None) or (isinstance(kind, type) and isinstance(value, kind) and _sound(value))


def _sound(value: Any) -> bool:
    """Whether a value, and all that it holds, can be used at all, whatever its type."""
    return not _fault(value)


def _fault(value: Any) -> str:
    """Say what a value must be that can never be used, or that holds such a value; empty if it can."""
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if isinstance(value, int) and not -LARGEST - 1 <= value <= LARGEST:
        return "a whole number of at most 64 bits"
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)):
        return "text in Unicode without NUL"
    parts = (*value.keys(), *value.values()) if isinstance(value, collections.abc.Mapping) else ()
    items = parts or (value if isinstance(value, (list, tuple)) else ())
    return next((fault for item in items if (fault := _fault(item))), "")


def misfits(name: str, value: Any, kind: Any) -> list[str]:
    """Return the sentence about a value that does not fit (the option's name, the value, what it must be), or nothing.

    A ``seed``, of whatever table, is what every generator of random numbers takes: from 0 to 2³² - 1.
    """
    if not fits(value, kind):
        return [f"{name} is {shown(value)}, but must be {_fault(value) or describe(kind)}"]
    seed = name.rpartition(".")[2] == "seed" and isinstance(value, int)
    return (
        [f"{name} is {value}, but must be from 0 to {LARGEST_SEED}"] if seed and not 0 <= value <= LARGEST_SEED else []
    )


def as_float(value: Any, kind: Any) -> Any:
    """A whole number as a float where the type takes floats and no integers, also inside a sequence."""
    kinds = (kind, *typing.get_args(kind))
    if isinstance(value, int) and not isinstance(value, bool) and float in kinds and int not in kinds:
        return float(value)
    if isinstance(value, (list, tuple)):
        return type(value)(as_float(item, part) for item in value for part in [item_kind(_sequence(kind))])
    return value


def _sequence(kind: Any) -> Any:
    """The sequence type in ``Sequence[float] | None``."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    parts = typing.get_args(kind) if union else (kind,)
    return next((part for part in parts if typing.get_origin(part) in (tuple, list, collections.abc.Sequence)), Any)


def item_kind(kind: Any) -> Any:
    """The type of what a list, tuple or sequence holds: ``int | str`` for ``tuple[int, str]``."""
    kinds = tuple(part for part in typing.get_args(kind) if part is not Ellipsis)
    return typing.Union[kinds] if kinds else Any  # noqa: UP007


def faults(catalogue: Mapping[str, type[Scheme]], name: str, given: Mapping[str, Any]) -> list[str]:
    """Everything wrong with a scheme's name and options, one sentence each; empty if nothing is."""
    if name not in catalogue:
        return [unknown("scheme", name, catalogue)]
    known = options(catalogue[name])
    wrong = []
    for key, value in given.items():
        if key not in known:
            wrong.append(unknown(f"option of {name}", key, known))
        else:
            wrong += misfits(f"{name}.{key}", value, known[key].kind)
    missing = [key for key, option in known.items() if option.default is inspect.Parameter.empty and key not in given]
    return wrong + [f"{name} needs the option {key} ({describe(known[key].kind)})" for key in missing]


def describe(kind: Any) -> str:
    """A type in words: ``one of 'half', 'interleaved'``."""
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(repr(value) for value in typing.get_args(kind))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(describe(part) for part in typing.get_args(kind))
    if typing.get_origin(kind) in (tuple, list, collections.abc.Sequence):
        return f"a list of {describe(item_kind(kind))}"
    if typing.get_origin(kind) is collections.abc.Mapping:
        return "a table"
    return "None" if kind is type(None) else getattr(kind, "__name__", str(kind))


def build(
    catalogue: Mapping[str, type[Scheme]], name: str, model: Sizes, given: Mapping[str, Any] | None = None
) -> Scheme:
    """Make a scheme by name for a model of these sizes. Raises ConfigError naming every fault."""
    given = dict(given or {})
    wrong = faults(catalogue, name, given)
    if wrong:
        raise ConfigError(wrong, f"scheme {name!r}")
    scheme = catalogue[name]
    kinds = options(scheme)
    given = {key: as_float(value, kinds[key].kind) for key, value in given.items()}
    known = asdict(model)
    try:
        return scheme(**{size: known[size] for size in sizes(scheme)}, **given)
    except ConfigError as fault:
        raise ConfigError(fault.faults, f"scheme {name!r}") from fault
