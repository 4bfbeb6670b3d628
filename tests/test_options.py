"""What can be told to a function or dataclass is read from its signature; what somebody wrote is judged by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import clockhands
from clockhands.errors import ArgumentError, ConfigError
from clockhands.options import (
    LARGEST_SEED,
    MISSING,
    Count,
    Range,
    Seed,
    Share,
    check_call,
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


def ring(bell: Bell | str, times: int, *, echoes: Sequence[float] = (), after: Callable[[], None] | None = None) -> int:
    return times


@pytest.mark.parametrize(
    ("values", "named", "sentence"),
    [
        ((), {}, r"ring: bell is missing \(Bell or text\); times is missing \(a whole number\)"),
        ((3, "x"), {}, "ring: bell is 3, but must be Bell or text; times is 'x', but must be a whole number"),
        (("b", 1, [2.0]), {}, "ring: 3 values were given by position, and it takes bell, times so"),
        (("b", True), {"echo": 1}, "ring: times is True, but .*; unknown argument 'echo'; did you mean 'echoes'[?]"),
        (("b", 1), {"bell": "c"}, "ring: bell stands twice, by position and by name"),
        (("b", 1), {"echoes": "12"}, "ring: echoes is '12', but must be a list of numbers"),
        (("b", 1), {"after": 3}, "ring: after is 3, but must be a function or none"),
    ],
)
def test_what_a_function_cannot_be_called_with_is_told_at_once(
    values: tuple[Any, ...], named: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ArgumentError, match=sentence + "$"):
        check_call(ring)(*values, **named)


def test_a_function_behind_the_check_gets_what_it_was_called_with() -> None:
    assert check_call(ring)(Bell(3.0), np.int64(2), echoes=np.ones(2), after=print) == 2
    with pytest.raises(TypeError, match="inside"):  # a fault of its own stays one
        check_call(fail)(1)


def fail(number: int) -> None:
    raise TypeError("inside")


@pytest.mark.parametrize(
    ("verb", "values", "named", "sentence"),
    [
        ("evaluate", ("runs/x", None), {}, "text is None, but must be a list of Pair or a list of texts"),
        ("evaluate", (None, ["a"]), {}, "run is None, but must be text or a path or Run"),
        ("train", (3,), {}, "recipe is 3, but must be Recipe or text or a path or a table; out is missing"),
        ("train", ("a.toml", "out", ["position.scheme=rope"]), {}, "overrides is .* but must be a table or none"),
        ("explain", ({"model_type": "llama"},), {}, "file is {'model_type': 'llama'}, but must be text or a path"),
        ("compare", ("a.toml",), {"out": "o", "vary": {}, "seed": 3}, "unknown argument 'seed'; did you mean 'seeds'"),
        ("inspect", (None,), {}, "model is None, but must be Module or Subject or text or a path"),
        ("inspect", ("m", 3), {}, "tokenizer is 3, but must be a function or text or a path or none"),
        ("check", ("x",), {"only": 3}, "only is 3, but must be text or a list of texts or none"),
        ("translate", (None, ["a"]), {}, "run is None"),
        ("generate", ("r",), {"tokens": "many"}, "tokens is 'many', but must be a whole number"),
        ("extend", ("llama",), {"to": "2x"}, "model is 'llama', but must be LanguageModel; unknown argument 'to'"),
        ("explore", (3,), {}, "models is 3, but must be text or a path or a list of"),
        ("study", (3,), {}, "name is 3, but must be text"),
        ("tour", (None,), {}, "out is None, but must be text or a path"),
        ("push", ("run", 3), {}, "name is 3, but must be text"),
    ],
)
def test_every_verb_says_what_its_function_cannot_be_called_with(
    verb: str, values: tuple[Any, ...], named: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        getattr(clockhands, verb)(*values, **named)
    assert getattr(clockhands, verb) is getattr(clockhands, verb)
