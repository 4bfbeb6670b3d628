"""Plans as files, and grids as a command writes them: every fault with its message."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.comparison.plan_file import read_grid, read_plan
from clockhands.errors import ConfigError, DataError
from clockhands.runs.recipe import vary_recipe
from clockhands.training import load_recipe

RECIPES = Path(__file__).parent.parent.parent / "recipes"
FIT = "recipe = {data = {corpus = 'roles'}, training = {max_steps = 2}}\nvary = {'model.d_ff' = [4, 8]}\n"


def test_the_recipe_in_the_repository_is_a_plan() -> None:
    made = read_plan(RECIPES / "sweep.toml", {"seeds": [3, 4]})
    assert made.seeds == (3, 4) and made.variants[-1].overrides == {"model.token_scale": "one"}
    assert made.metric == "exact" and made.higher_is_better


def test_the_command_line_writes_values_as_their_fields_want_them() -> None:
    recipe = load_recipe(RECIPES / "numbers.toml")
    grid = read_grid(["position.scheme=rope, alibi", "model.d_model=32,64", "model.residual=true,false"], recipe)
    assert grid == {"position.scheme": ["rope", "alibi"], "model.d_model": [32, 64], "model.residual": [True, False]}
    with pytest.raises(ConfigError, match=r"'position.scheme' is not of the form KEY=VALUE,VALUE"):
        read_grid(["position.scheme"], recipe)


def test_a_file_that_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the plan"):
        read_plan(tmp_path / "none.toml")
    path = tmp_path / "plan.toml"
    path.write_text("seeds = [", "utf8")
    with pytest.raises(DataError, match="is not TOML"):
        read_plan(path)
    path.write_text("seed = 3", "utf8")
    with pytest.raises(ConfigError) as caught:
        read_plan(path)
    assert len(caught.value.faults) == 3
    assert "unknown key 'seed'; did you mean 'seeds'" in str(caught.value)
    assert "there is nothing to compare" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FIT + "seeds = [[1], 2]", r"seeds is \[\[1\], 2\], but must be a whole number or a list of whole numbers"),
        (FIT + "budget = {steps = 'x'}", "budget.steps is 'x', but must be a number"),
        (FIT + "seeds = 'x'", "seeds is 'x', but must be a whole number"),
        (FIT + "metric = ['exact']", r"metric is \['exact'\], but must be text or none"),
        (FIT + "match = {}", "match is {}, but must be text"),
        (FIT + "inside = [3]", r"inside is \[3\], but must be a list of texts"),
        (FIT + "target = nan", "target is nan, but must be a finite number"),
        (FIT + "budget = 3", "budget is 3, but must be a table"),
        ("recipe = 'x'\nvary = 3", "vary is 3, but must be a table"),
        ("recipe = 'x'\nvary = {'position.scheme' = 'rope'}", "in the grid is 'rope', but must be a list of values"),
        ("recipe = 3\nvary = {a = [1]}", "recipe is 3, but must be the path of a recipe, or its tables"),
        ("recipe = {data = 3}\nvary = {a = [1]}", r"\[data\] is 3, but must be a table"),
        ("recipe = {data = {corpus = 'roles'}}\nvariant = 3", "variant is 3, but must be a list of tables"),
        (
            "recipe = {data = {corpus = 'roles'}}\nvariant = [3]",
            r"a \[\[variant\]\] is 3; it has a name, which is text",
        ),
        ("recipe = {data = {corpus = 'roles'}}\nvariant = [{name = 3}]", r"a \[\[variant\]\] is {'name': 3}"),
        ("a = " + "[" * 5000, "nests tables or lists more than"),
    ],
)
def test_a_plan_of_the_wrong_kind_is_one_message(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises((ConfigError, DataError), match=message):
        read_plan(tmp_path / "plan.toml")


def test_the_plan_of_layers_asks_what_layers_rotate_and_see() -> None:
    made = read_plan(RECIPES / "layers.toml")
    named = {variant.name: vary_recipe(made.recipe, variant.overrides).model.decoder.name for variant in made.variants}
    assert named["every other layer"] == "rope | none" and named["sinks"] == "rope + sinks"
    assert named["rope in windows below a layer that sees all"] == "rope + window | none"
    assert len(named) == len(made.variants) == 12
