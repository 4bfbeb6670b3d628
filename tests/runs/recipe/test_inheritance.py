"""What a recipe takes over from the run that it begins from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import CheckpointError
from clockhands.model.config import TransformerConfig
from clockhands.runs.recipe import Recipe, inherit_tables, make_recipe
from clockhands.runs.recipe.inheritance import (
    find_tokenizer_folder,
    make_model_table,
    make_position_table,
)

NUMBERS: dict[str, Any] = {"data": {"corpus": "numbers"}, "model": {"preset": "tiny"}, "training": {"max_steps": 9}}


def test_a_home_that_does_not_exist_is_no_model_to_begin_from() -> None:
    with pytest.raises(CheckpointError, match=r"training\.begin_from: .*~nobody-here.*holds no model; it is not there"):
        make_recipe(NUMBERS, {"training.begin_from": "~nobody-here/x"})


def test_only_a_checkpoint_takes_the_tokenizer_of_the_folder_above(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert find_tokenizer_folder(tmp_path / "checkpoints" / "checkpoint-3") == tmp_path
    with pytest.raises(CheckpointError, match="holds no tokenizer"):
        find_tokenizer_folder(tmp_path / "models" / "model")


def test_the_tables_of_a_model_are_read_back_as_that_model() -> None:
    for position in ({"scheme": "rope", "base": 7.0}, {"scheme": "rope", "encoder": {"scheme": "alibi"}}):
        model = Recipe.from_tables({**NUMBERS, "position": position}).model
        tables = {**NUMBERS, "model": make_model_table(model), "position": make_position_table(model)}
        assert Recipe.from_tables(tables).model == model
    assert make_position_table(TransformerConfig()) == {"scheme": "sinusoidal", "combine": "add",
        "every_layer": False, "skip_every": 0
    }  # fmt: skip


def test_without_a_run_to_begin_from_nothing_is_taken_over() -> None:
    assert inherit_tables(NUMBERS, {}) is NUMBERS
    assert inherit_tables(NUMBERS, {"training.begin_from": "none"}) is NUMBERS


@pytest.mark.parametrize("both", [True, False])
def test_the_tokenizer_of_the_target_is_taken_over_where_there_is_one(both: bool, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "target")[: 2 if both else 1]:
        folder.mkdir(exist_ok=True)
        (folder / "tokenizer_config.json").write_text("{}", "utf8")
    table = inherit_tables({**NUMBERS, "position": {"scheme": "rope"}}, {"training.begin_from": tmp_path})["tokenizer"]
    assert table["name"] == str(tmp_path)
    assert table.get("target_name") == (str(tmp_path / "target") if both else None)
