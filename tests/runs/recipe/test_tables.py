"""The tables of a recipe: which keys they take, and how keys are set, whatever their order, by dotted names."""

from __future__ import annotations

import tomllib
from copy import deepcopy
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import ConfigError
from clockhands.runs.recipe import Recipe, apply_overrides, make_recipe
from clockhands.runs.recipe.tables import find_keys, has_unknown_selector, make_absolute, split_by_side

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
    assert has_unknown_selector({"data": {"corpus": "nothing"}}, "data")
    assert not has_unknown_selector(rope, "position")


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
        (
            ["position.preset=gemma-3", "position.kinds.global.bse=5"],
            r"unknown option of rope 'bse'; did you mean 'base'",
        ),
        (
            ["position.preset=gemma-3", "position.kinds.local.base=5"],
            r"position.kinds.local has several schemes; say which",
        ),
        (['position.schemes=["rope"]', "position.schemes[1].base=5"], r"there is no 1 in"),
        (["position.preset=gema-3"], r"position.preset: unknown position preset 'gema-3'; did you mean 'gemma-3'"),
        (
            ['position.layers=["rope", "none", "rope", "none"]'],
            r"position.layers has 4 entries, a pattern whose length does not divide the 6 layers",
        ),
    ],
)
def test_what_is_not_there_is_refused(written: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(*written)
