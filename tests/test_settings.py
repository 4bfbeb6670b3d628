"""Settings: every fault at once, in the sentences of ``options``; nothing is taken for another type."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, field, replace
from typing import Annotated, Any, Literal

import pytest

from clockhands.errors import ConfigError, Fault
from clockhands.options import Count, Range, check_options, options_of
from clockhands.settings import check_fields, settings


@settings
class Bell:
    pitch: float
    weight: Count | None = 3
    shape: Literal["round", "none"] = "round"
    cracked: bool = False
    tones: tuple[float, ...] = ()
    loudness: Annotated[float, Range(least=0, below=1)] | Literal["auto"] = "auto"
    tags: Mapping[str, Any] = field(default_factory=dict)

    def find_faults(self) -> list[str]:
        return ["a heavy bell is round"] if (self.weight or 0) > 8 and self.shape != "round" else []


WRONG: list[dict[str, Any]] = [
    {"weight": 0}, {"weight": "3"}, {"weight": True}, {"weight": 2.5}, {"weight": 2**64}, {"shape": "square"},
    {"cracked": 1}, {"tones": [1, "x"]}, {"tones": 3}, {"loudness": 1.0}, {"loudness": "loud"}, {"tags": 3},
    {"pitch": float("nan")}, {"pitch": float("inf")}, {"pitch": None}, {"pitch": "a\0"}, {"wieght": 3},
]  # fmt: skip


@pytest.mark.parametrize("values", WRONG, ids=repr)
def test_pydantic_refuses_what_the_reader_of_options_refuses_in_the_same_sentence(values: dict[str, Any]) -> None:
    table = {"pitch": 440.0, **values}
    said = check_options(table, options_of(Bell), "bell", prefix="bell.", noun="key in [bell]")[1]
    right, faults = check_fields(Bell, table, "bell.", "key in [bell]")
    assert faults == said and len(said) == 1
    (fault,) = faults
    assert isinstance(fault, Fault) and fault.keys == tuple(values)
    assert not values.keys() & right.keys()


@pytest.mark.parametrize(
    "values",
    [{"weight": 4.0}, {"weight": "none"}, {"weight": None}, {"tones": [1, 2.5]}, {"loudness": 0}, {"tags": {"a": [1]}}],
    ids=repr,
)
def test_what_fits_is_converted_as_the_reader_of_options_does(values: dict[str, Any]) -> None:
    table = {"pitch": 440, **values}
    right, faults = check_fields(Bell, table)
    assert faults == [] and right == check_options(table, options_of(Bell), "bell")[0]
    made = Bell(**table)
    assert {name: getattr(made, name) for name in right} == right
    assert repr(made.pitch) == "440.0"


def test_all_faults_are_told_at_once_and_then_those_of_fields_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Bell(weight=0, shape="square")  # type: ignore[arg-type, call-arg]
    assert set(caught.value.faults) == {
        "weight is 0, but must be at least 1",
        "shape is 'square', but must be one of 'round', 'none'",
        "pitch is missing (a number)",
    }
    with pytest.raises(ConfigError, match="a heavy bell is round"):
        Bell(440.0, 9, "none")


def test_they_are_frozen_dataclasses() -> None:
    bell = Bell(440.0, 5)
    assert replace(bell, shape="none") == Bell(440.0, 5, "none") and pickle.loads(pickle.dumps(bell)) == bell
    with pytest.raises(ConfigError, match="weight is 0"):
        replace(bell, weight=0)
    with pytest.raises(FrozenInstanceError):
        bell.weight = 7  # type: ignore[misc]
