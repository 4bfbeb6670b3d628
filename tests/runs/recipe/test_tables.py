"""The tables of a recipe: which keys they take, how keys are set by dotted names, and what is taken over from a run."""

from __future__ import annotations

import tomllib
from copy import deepcopy
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import CheckpointError, ConfigError
from clockhands.model.config import TransformerConfig
from clockhands.runs.recipe import Recipe, apply_overrides, inherit_tables, make_recipe
from clockhands.runs.recipe.tables import (
    find_keys,
    find_tokenizer_folder,
    make_absolute,
    make_model_table,
    make_position_table,
    split_by_side,
)

TABLES: dict[str, Any] = {
    "data": {"corpus": "numbers", "target": "en"},
    "position": {"scheme": "sinusoidal", "base": 500.0, "combine": "project", "width": 8},
    "training": {"max_steps": 9},
}
LAYERED: dict[str, Any] = {
    "data": {"corpus": "roles"},
    "model": {"preset": "tiny", "encoder_layers": 6, "decoder_layers": 6},
    "training": {"max_steps": 9},
}


def test_the_scheme_and_the_corpus_decide_which_keys_there_are() -> None:
    rope, none = ({"position": {"scheme": scheme}} for scheme in ("rope", "none"))
    assert "base" in find_keys(rope, "position") and "base" not in find_keys(none, "position")
    assert "combine" in find_keys(none, "position")
    sides = {"position": {"scheme": "none", "encoder": "rope"}}
    assert "base" in find_keys(sides, "position.encoder") and "base" not in find_keys(sides, "position.decoder")
    assert "source" in find_keys({"data": {"corpus": "parallel"}}, "data")
    assert set(find_keys({"data": {"corpus": "nothing"}}, "data")) == {"corpus"}


def test_a_side_with_a_scheme_of_its_own_takes_nothing_from_the_others() -> None:
    position = {"scheme": "rope", "base": 7.0, "encoder": {"scheme": "alibi"}, "decoder": {"layout": "half"}}
    assert dict(split_by_side(position)) == {
        "encoder": {"scheme": "alibi"},
        "decoder": {"scheme": "rope", "base": 7.0, "layout": "half"},
        "cross": {},
    }


def test_relative_paths_are_taken_from_a_folder() -> None:
    base = Path("/a/b")
    assert make_absolute("c.txt", base) == "/a/b/c.txt"
    assert make_absolute(["c", "/d"], base) == ["/a/b/c", "/d"]
    assert make_absolute("~/c", base) == str(Path.home() / "c")
    assert make_absolute(3, base) == 3


def test_the_order_of_overrides_does_not_matter_and_the_tables_stay() -> None:
    overrides = {"position.base": 7.0, "position.scheme": "rope", "position.encoder.scheme": "alibi"}
    before = deepcopy(TABLES)
    results = [apply_overrides(TABLES, dict(order)) for order in permutations(overrides.items())]
    expected = {"scheme": "rope", "base": 7.0, "combine": "project", "width": 8, "encoder": {"scheme": "alibi"}}
    assert all(result["position"] == expected for result in results)
    assert before == TABLES


def test_another_corpus_drops_the_options_of_the_former() -> None:
    assert apply_overrides(TABLES, {"data.corpus": "roles"})["data"] == {"corpus": "roles"}
    assert apply_overrides(TABLES, {"data.corpus": "numbers"})["data"] == TABLES["data"]


def test_every_key_that_cannot_be_set_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(TABLES, {"training.max_step": 3, "trainin.clip": 1, "clip": 1, "training.clip": 2.0})
    assert [fault.partition(": ")[0] for fault in caught.value.faults] == [
        "cannot set 'training.max_step'",
        "cannot set 'trainin.clip'",
        "cannot set 'clip'",
    ]
    assert "did you mean 'max_steps'?" in caught.value.faults[0]
    assert "did you mean 'training'?" in caught.value.faults[1]


def read(*assignments: str) -> Recipe:
    return make_recipe(LAYERED, dict(text.split("=", 1) for text in assignments), written=True)


def test_parts_side_by_side_are_set_by_their_number() -> None:
    recipe = read('position.schemes=["rope", {scheme = "window", left = 31}]', "position.schemes[1].left=7")
    assert recipe.model.decoder.scheme == "composition"
    assert recipe.model.decoder.options["schemes"] == ["rope", {"scheme": "window", "left": 7}]
    named = read('position.schemes=["rope", "window"]', "position.schemes[0].base=500")
    assert named.model.encoder.options["schemes"][0] == {"scheme": "rope", "base": 500.0}


def test_kinds_of_a_preset_are_set_by_their_names() -> None:
    recipe = read(
        "position.preset=gemma-3", "position.kinds.global.base=5e6", "position.kinds.local.schemes[1].left=31"
    )
    kinds = recipe.model.decoder.kinds
    assert kinds["global"] == {"scheme": "rope", "base": 5e6}
    assert kinds["local"]["schemes"][1] == {"scheme": "window", "left": 31}
    assert read("position.preset=gemma-3").model.decoder.kinds["global"]["base"] == 1e6, "the preset stays as it was"


def test_layers_of_one_side_are_set_by_their_number() -> None:
    recipe = read(
        "position.scheme=rope",
        'position.decoder.layers=[{scheme = "rope", base = 9.0}, "none"]',
        "position.decoder.layers[0].base=8",
    )
    assert recipe.model.decoder.layers == [{"scheme": "rope", "base": 8.0}, "none"]
    assert recipe.model.encoder.layers is None and recipe.model.encoder.scheme == "rope"


def test_another_scheme_replaces_a_layout_and_what_was_resolved_reads_back() -> None:
    recipe = read("position.preset=hybrid-2026", "position.kinds.local.schemes[1].left=5")
    again = Recipe.from_tables(tomllib.loads(recipe.to_toml()))
    assert again.model.to_dict() == recipe.model.to_dict()
    plain = make_recipe(recipe.tables, {"position.scheme": "alibi"})
    assert plain.model.decoder.layers is None and plain.model.decoder.name == "alibi"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["position.preset=gemma-3", "position.kinds.locl.base=5"], r"there is no 'locl' in"),
        (["position.preset=gemma-3", "position.kinds.global.bse=5"],
         r"unknown option of rope 'bse'; did you mean 'base'"),
        (["position.preset=gemma-3", "position.kinds.local.base=5"],
         r"position.kinds.local has several schemes; say which"),
        (['position.schemes=["rope"]', "position.schemes[1].base=5"], r"there is no 1 in"),
        (["position.preset=gema-3"], r"position.preset: unknown position preset 'gema-3'; did you mean 'gemma-3'"),
        (['position.layers=["rope", "none", "rope", "none"]'],
         r"position.layers has 4 entries, a pattern whose length does not divide the 6 layers"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused(written: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(*written)


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
