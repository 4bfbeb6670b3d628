"""What a recipe asks of this machine, of its text and of a run is refused before anything is trained."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clockhands.errors import DataError, UsageError
from clockhands.runs import Run
from clockhands.runs.recipe import Recipe
from clockhands.training.checks import check_before_reading, check_material, check_resumed
from clockhands.training.training_data import prepare
from tests.training.tiny import tables


def test_a_recipe_for_this_machine_passes() -> None:
    recipe = Recipe.from_tables(tables())
    check_before_reading(recipe)
    check_material(recipe, prepare(recipe))


def test_one_process_cannot_divide_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    sharded = Recipe.from_tables(tables(sharded=True))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(UsageError, match="divides the model among processes, and there is one"):
        check_before_reading(sharded)
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_before_reading(sharded)


def test_a_table_must_be_as_long_as_the_longest_example() -> None:
    def make(max_length: int) -> Recipe:
        return Recipe.from_tables({**tables(), "position": {"scheme": "learned", "max_length": max_length}})

    material = prepare(make(500))
    longest = max(material.train.longest)
    check_material(make(longest), material)
    with pytest.raises(UsageError, match=f"has {longest - 1} positions and the longest example {longest} tokens"):
        check_material(make(longest - 1), material)


@pytest.mark.parametrize(
    ("record", "last", "refusal"),
    [
        ({"data": "another"}, None, (DataError, "is not what it was when training began")),
        ({}, "checkpoint-9", (UsageError, "has made 9 steps already, and 8 are asked for")),
        ({}, "checkpoint-8", None),
    ],
)
def test_a_run_is_resumed_on_its_text_and_up_to_its_end(record: dict[str, Any], last: str | None, refusal: Any) -> None:
    recipe = Recipe.from_tables(tables(max_steps=8))
    material = prepare(recipe)
    run: Any = SimpleNamespace(record=record, path=Path("here"), spec=Run)
    checkpoint = None if last is None else Path(last)
    if refusal is None:
        check_resumed(run, recipe, material, checkpoint)
    else:
        with pytest.raises(refusal[0], match=refusal[1]):
            check_resumed(run, recipe, material, checkpoint)
