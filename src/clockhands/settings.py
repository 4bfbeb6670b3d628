"""Settings: frozen dataclasses that pydantic validates as they are made, from the annotations that ``options`` reads.

::

    @settings
    class Bell:
        weight: Count = 3
        pitch: Positive | None = None

        def find_faults(self) -> list[str]:
            return [] if self.weight < 9 or self.pitch else ["a heavy bell needs a pitch"]

    Bell(weight=0)                            # ConfigError: weight is 0, but must be at least 1
    check_fields(Bell, {"wieght": 2}, "bell.", "key in [bell]")
                                              # {}, ["unknown key in [bell] 'wieght'; did you mean 'weight'?"]

No value is taken for one of another type but those that ``convert`` names: pydantic is strict here. Everything wrong is
told at once: first the fields, each by itself, and where these are right, what ``find_faults`` says of them together.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as validated_dataclass
from pydantic_core import ArgsKwargs

from clockhands.errors import ConfigError, Fault, describe_unknown, show_value
from clockhands.options import check_value, convert, describe, explain_unusable, options_of

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
DataclassType = TypeVar("DataclassType", bound=type)


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def settings(kind: DataclassType) -> DataclassType:
    """Make a class a frozen dataclass whose fields are validated, and then ``find_faults``, if it has that method.

    Making one raises ConfigError with everything that is wrong.
    """
    made: Any = validated_dataclass(kind, frozen=True, config=STRICT)
    validate, names = made.__init__, [field.name for field in dataclasses.fields(made)]

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        known, faults = check_fields(type(self), dict(zip(names, values, strict=False)) | named)
        if not faults:
            validate(self, **known)
            faults = list(getattr(self, "find_faults", list)())
        if faults:
            raise ConfigError(faults, getattr(type(self), "ORIGIN", made.__name__))

    made.__init__ = __init__
    return cast(DataclassType, made)


def check_fields(
    kind: type, table: Mapping[str, Any], prefix: str = "", noun: str = "option"
) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a table that fit the fields of settings, converted, and a ``Fault`` for each that does not.

    ``prefix`` stands before the name of a field in messages; ``noun`` is what one is called where a name is unknown.
    """
    known = options_of(kind)
    values = {name: convert(value, known[name].type) if name in known else value for name, value in table.items()}
    # What is in a table is judged with what it is for, such as the options of a scheme.
    wrong = [name for name, value in values.items() if not isinstance(value, Mapping) and explain_unusable(value)]
    try:
        validator: Any = kind.__pydantic_validator__  # type: ignore[attr-defined]
        validator.validate_python(ArgsKwargs((), values), self_instance=object.__new__(kind))
    except ValidationError as error:
        wrong += [str(fault["loc"][0]) for fault in error.errors(include_url=False, include_context=False)]
    faults: list[str] = []
    for name in dict.fromkeys(wrong):
        if name not in known:
            sentence = describe_unknown(noun, name, known)
        elif name not in values:
            sentence = f"{prefix}{name} is missing ({describe(known[name].type)})"
        else:
            sentences = check_value(f"{prefix}{name}", values[name], known[name].type)
            sentence = (
                sentences[0] if sentences else f"{prefix}{name} is {show_value(values[name])}, which does not fit"
            )
        faults.append(Fault(sentence, name))
    return {name: value for name, value in values.items() if name not in wrong}, faults
