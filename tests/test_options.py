"""What can be told to a function or dataclass is read from its signature; what somebody wrote is judged by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from clockhands.errors import ConfigError
from clockhands.options import (
    LARGEST_SEED,
    MISSING,
    Count,
    Range,
    Seed,
    Share,
    check_options,
    check_value,
    convert,
    defaults_of,
    describe,
    fits,
    options_of,
    parse,
    read_assignments,
    takes_path,
)


@dataclass(frozen=True)
class Bell:
    """A bell.

    Args:
        pitch: in hertz, of the
            strike note.
        shape: what it looks like.
    """

    pitch: float
    weight: Count = 3
    shape: Literal["round", "none"] = "round"
    tags: Mapping[str, Any] = field(default_factory=dict)


class Clock:
    def __init__(
        self, width: int, *, ticks: Annotated[int, Range(least=2)] = 60, face: str | Path | None = None
    ) -> None:
        """Nothing of it is read."""


def test_options_are_fields_and_keyword_only_parameters() -> None:
    bell, clock = options_of(Bell), options_of(Clock)
    assert list(bell) == ["pitch", "weight", "shape", "tags"]
    assert bell["pitch"].required and bell["pitch"].default is MISSING and bell["pitch"].type is float
    assert bell["pitch"].meaning == "in hertz, of the strike note."
    assert defaults_of(bell) == {"weight": 3, "shape": "round", "tags": {}}
    assert list(clock) == ["ticks", "face"]
    assert takes_path(clock["face"].type) and not takes_path(clock["ticks"].type)
    assert list(options_of(lambda *, a=1, b: None)) == ["a", "b"]


def test_fields_described_together_have_one_meaning_and_an_inherited_one_keeps_its_own_unless_described_anew() -> None:
    @dataclass(frozen=True)
    class Chime(Bell):
        """A chime.

        Args:
            lowest, highest: its tones, in hertz.
            shape: a tube.
        """

        lowest: float = 1.0
        highest: float = 2.0

    told = {name: option.meaning for name, option in options_of(Chime).items() if name not in ("weight", "tags")}
    assert told == {
        "pitch": "in hertz, of the strike note.", "shape": "a tube.", "lowest": "its tones, in hertz.",
        "highest": "its tones, in hertz.",
    }  # fmt: skip


def test_every_fault_of_a_table_is_told_at_once() -> None:
    values, faults = check_options({"wieght": 1, "weight": 0, "shape": "square", "tags": {}}, options_of(Bell), "bell")
    assert faults == [
        "unknown option of bell 'wieght'; did you mean 'weight'?",
        "bell.weight is 0, but must be at least 1",
        "bell.shape is 'square', but must be one of 'round', 'none'",
        "bell.pitch is missing (a number)",
    ]
    assert values == {"tags": {}}
    assert check_options({"pitch": 440}, options_of(Bell), "bell") == ({"pitch": 440.0}, [])
    (fault,) = check_options({"pitch": "x"}, options_of(Bell), "bell", prefix="at ")[1]
    assert fault == "at pitch is 'x', but must be a number"


@pytest.mark.parametrize(
    ("value", "annotation", "result"),
    [
        (3, float, 3.0),
        (3, float | None, 3.0),
        (3, Share | None, 3.0),
        (None, float | None, None),
        (3, int, 3),
        (3, int | float, 3),
        (1e3, int, 1000),
        (1e3, Count | None, 1000),
        (1.5, int, 1.5),
        (True, bool, True),
        ([1, 2.5], Sequence[float] | None, [1.0, 2.5]),
        ((1,), tuple[float, ...], (1.0,)),
        ([1], tuple[int, ...], (1,)),
        ([1], Sequence[int], [1]),
        ([1], int, [1]),
        ("half", Literal["half"], "half"),
        ("none", float | None, None),
        ("none", Literal["none", "all"] | None, "none"),
        ("none", str, "none"),
    ],
)
def test_a_value_becomes_what_the_annotation_wants(value: Any, annotation: Any, result: Any) -> None:
    got = convert(value, annotation)
    assert got == result
    assert repr(got) == repr(result)


@pytest.mark.parametrize(
    ("written", "annotation", "result"),
    [
        ("2e3", int, 2000.0),
        ("rope", str, "rope"),
        ("2024", str, "2024"),
        ("2024", int, 2024),
        ("True", bool, True),
        ("[1, 2]", tuple[int, ...], [1, 2]),
        ("tensorboard", tuple[str, ...], ["tensorboard"]),
        ("none", float | None, "none"),
        ("x = 1\ny", Any, "x = 1\ny"),
        ("much", float, "much"),
        (".5", float | None, 0.5),
        ("-5.", float, -5.0),
        (".5", str, ".5"),
        ("9" * 5000, int, "9" * 5000),
    ],
)
def test_text_is_read_as_the_annotation_wants_it(written: str, annotation: Any, result: Any) -> None:
    assert repr(parse(written, annotation)) == repr(result)


@pytest.mark.parametrize(
    ("value", "annotation", "must"),
    [
        (0, Count, "at least 1"),
        (0, Count | None, "at least 1"),
        (-0.5, Share | Literal["auto"], "from 0 to below 1"),
        (1.0, Share, "from 0 to below 1"),
        (LARGEST_SEED + 1, Seed, "from 0 to 4,294,967,295"),
        (0.0, Annotated[float, Range(above=0)], "above 0"),
        (1.0, Annotated[float, Range(above=0, below=1)], "above 0 and below 1"),
        (9, Annotated[int, Range(most=8)], "at most 8"),
        (0.0, Annotated[float, Range(above=0, most=2)], "above 0 and at most 2"),
        (float("nan"), Share, "a finite number"),
        (2**63, int, "a whole number of at most 64 bits"),
        ("a\0", str, "text in Unicode without NUL"),
        (True, int, "a whole number"),
        ([1, "x"], Sequence[int] | None, "a list of whole numbers or none"),
        ("x", bool | Mapping[str, Any] | Path, "true or false or a table or a path"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_what_it_must_be(value: Any, annotation: Any, must: str) -> None:
    (fault,) = check_value("bell", value, annotation)
    assert fault.startswith("bell is ") and fault.endswith(f", but must be {must}")


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, Count),
        (None, Count | None),
        ("auto", Share | Literal["auto"]),
        (0, Share),
        (LARGEST_SEED, Seed),
        (0, int | Count),
    ],
)
def test_a_value_in_its_range_has_no_fault(value: Any, annotation: Any) -> None:
    assert check_value("bell", value, annotation) == []
    assert fits(value, annotation)


def test_a_type_is_described_in_words() -> None:
    assert describe(Literal["half", "interleaved"]) == "one of 'half', 'interleaved'"
    assert describe(str | Path | list[str]) == "text or a path or a list of texts"
    assert describe(Count | None) == "a whole number or none"


def test_assignments_are_read_and_those_that_are_none_are_told_together() -> None:
    assert read_assignments(["a.b = 1", "c=d=e", "c=f"]) == {"a.b": "1", "c": "f"}
    with pytest.raises(ConfigError, match=r"(?s)^--set has 2 faults.*'a' is not of the form KEY=VALUE.*'b' is not"):
        read_assignments(["a", "x=1", "b"])
