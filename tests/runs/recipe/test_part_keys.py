"""Overrides of one scheme among several, by dotted names as a person writes them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from clockhands.errors import ConfigError
from clockhands.runs.recipe import Recipe, make_recipe

TABLES: dict[str, Any] = {
    "data": {"corpus": "roles"},
    "model": {"preset": "tiny", "encoder_layers": 6, "decoder_layers": 6},
    "training": {"max_steps": 9},
}


def read(*assignments: str) -> Recipe:
    return make_recipe(TABLES, dict(text.split("=", 1) for text in assignments), written=True)


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
