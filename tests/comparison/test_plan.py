"""Plans: what is varied, and every fault with its message."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from clockhands.comparison.plan import Plan, Variant, make_plan, read_grid, read_plan
from clockhands.comparison.trial_runner import make_material_key
from clockhands.errors import ConfigError, DataError
from clockhands.training import load_recipe, vary_recipe
from tests.comparison.planted import plan
from tests.training.tiny import tables

RECIPES = Path(__file__).parent.parent.parent / "recipes"


def test_a_plan_is_read_back_and_its_fingerprint_ignores_the_seeds_alone() -> None:
    made = plan()
    assert Plan.from_dict(made.to_dict()) == made
    assert (plan(budget=None).budget, plan(budget={"tokens": 1000}).budget) == (("steps", 8), ("tokens", 1000))
    assert plan(seeds=7).fingerprint == made.fingerprint
    assert plan(budget={"steps": 7}).fingerprint != made.fingerprint
    assert plan(match="parameters").fingerprint != made.fingerprint


def test_a_margin_belongs_to_the_plan_and_is_absent_where_the_metric_decides() -> None:
    made = plan(margin=2.0, learned=30.0)
    assert Plan.from_dict(made.to_dict()) == made and made.equal_within == 2.0
    assert made.fingerprint != plan().fingerprint, "a margin is set before measuring"
    assert (plan().equal_within, plan(metric="chrf").equal_within, plan(metric="loss").equal_within) == (1.0, 0.3, 0.01)


def test_a_seed_decides_what_a_scheme_draws_unless_it_has_a_seed_of_its_own() -> None:
    made = plan(vary={"position.scheme": ["random", "sinusoidal", "learned"]})
    assert [made.get_recipe("random", seed).tables["position"]["seed"] for seed in (1, 2)] == [1, 2]
    assert "seed" not in made.get_recipe("learned", 2).tables["position"]
    given = plan(variants=[Variant("seven", {"position.scheme": "random", "position.seed": 7})])
    assert given.get_recipe("seven", 2).tables["position"]["seed"] == 7
    sides = plan(variants=[Variant("sides", {"position.decoder.scheme": "random"})]).get_recipe("sides", 4)
    assert sides.tables["position"]["decoder"]["seed"] == 4


def test_a_seed_draws_the_training_text_where_the_plan_says_so() -> None:
    made, usual = plan(redraw_text=True), plan()
    assert [made.get_recipe("learned", seed).training.text_seed for seed in (1, 2)] == [1, 2]
    assert usual.get_recipe("learned", 2).training.text_seed is None
    assert Plan.from_dict(made.to_dict()) == made and made.fingerprint != usual.fingerprint
    assert plan(redraw_text=False).fingerprint == usual.fingerprint
    keys = [make_material_key(made.get_recipe("learned", seed)) for seed in (1, 2)]
    assert keys[0] != keys[1], "the text of one seed must not serve the next"


WIDE = Variant("wide", {"position.combine": "concatenate", "position.width": 16, "model.tying": "none"})
BAD: list[tuple[dict[str, Any], str]] = [
    ({"vary": None, "variants": [Variant("base"), WIDE]}, r"variant 'wide': .*width"),
    ({"vary": {"position.schem": ["rope"]}}, "variant 'rope': cannot set 'position.schem': unknown key"),
    ({"vary": {"position.scheme": ["rope", "ropee"]}}, "variant 'ropee': .*did you mean 'rope'"),
    ({"vary": {"position.scheme": []}}, "the grid is empty: position.scheme has no values"),
    ({"vary": {"position.scheme": "rope"}}, "'rope', but must be a list of values"),
    ({"vary": {"position.scheme": ["rope"]}}, "there is one variant, 'rope'; a comparison needs another"),
    ({"vary": {"model.d_model": [16, 15]}}, "variant '15': .*"),
    ({"vary": {"position.base": [10.0, "x"]}}, "variant 'x': position.base is 'x'"),
    ({"vary": {"position.scheme": ["none", "rope"], "position.beyond": ["clamp"]}}, "unknown key .* 'beyond'"),
    ({"vary": {"training.seed": [1, 2]}}, "variant '1' sets training.seed, which the plan sets"),
    ({"vary": {"training.text_seed": [1, 2]}, "redraw_text": True}, "'1' sets training.text_seed, .* from each seed"),
    ({"redraw_text": "yes"}, "redraw_text is 'yes'"),
    ({"seeds": 0}, "seeds is 0; 1 to 1,000 are trained"),
    ({"seeds": [1, 1]}, r"seeds is \[1, 1\], but must be a count or a list of different"),
    ({"budget": {"steps": 5, "tokens": 9}}, "must be one of steps, tokens, seconds"),
    ({"budget": {"hours": 1}}, "budget is {'hours': 1}, but must be one of steps, tokens, seconds"),
    ({"metric": "bleuu"}, "unknown metric 'bleuu'"),
    ({"match": "heads"}, "unknown match 'heads'"),
    ({"inside": ["loudnes"]}, "unknown measure 'loudnes'; did you mean 'loudness'"),
    ({"baseline": "rope"}, "unknown baseline 'rope'"),
    ({"budget": {"steps": math.nan}}, "the budget of steps is nan, but must be a finite number above 0"),
    ({"budget": {"seconds": math.inf}}, "the budget of seconds is inf, but must be a finite number above 0"),
    ({"budget": {"steps": True}}, "the budget of steps is True, but must be a finite number above 0"),
    ({"target": math.nan}, "target is nan, but must be a finite number"),
    ({"margin": 0}, "margin is 0, but must be above 0: differences below it count as equal"),
    ({"margin": math.nan}, "margin is nan, but must be a finite number"),
    ({"learned": math.inf}, "learned is inf, but must be a finite number"),
    ({"seeds": 10**9}, "seeds is 1000000000; 1 to 1,000 are trained"),
    ({"seeds": [2**32]}, r"seeds is \[4294967296\], but must be a count or a list"),
    ({"vary": {f"training.{n}": list(range(99)) for n in "abcdef"}}, "the grid has 941,480,149,401 variants; at most"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_fault_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(**changes)


def test_faults_of_all_variants_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        plan(vary={"position.scheme": ["alpha", "beta"]}, seeds=0)
    assert len(caught.value.faults) == 3


def test_what_cannot_be_scored_is_refused() -> None:
    language = {"data": {"corpus": "stdlib"}, "training": {"max_steps": 3}, "model": {"preset": "tiny"}}
    grid = {"position.scheme": ["rope", "none"]}
    assert make_plan(language, vary=grid).metric == "loss"
    with pytest.raises(ConfigError, match="a language model has 'loss'"):
        make_plan(language, vary=grid, metric="exact")
    masked = vary_recipe(load_recipe(RECIPES / "stdlib.toml"), {"model.kind": "encoder"})
    with pytest.raises(ConfigError, match="masked language model writes nothing"):
        make_plan(masked, vary=grid)
    epochs = {**tables(max_steps=None, epochs=1.0)}
    with pytest.raises(ConfigError, match="the recipe counts epochs"):
        make_plan(epochs, vary=grid)


def test_a_grid_is_every_combination_by_name() -> None:
    made = plan(vary={"position.scheme": ["sinusoidal", "none"], "model.residual": [True, False]})
    names = [variant.name for variant in made.variants]
    assert names[1] == "scheme=sinusoidal, residual=false" and len(names) == 4
    assert made.baseline == names[0]
    assert made.get_recipe(names[3], 2).model.residual is False
    assert made.get_recipe(names[3], 2).training.seed == 2
    assert made.trials[:4] == [(name, 1) for name in names], "a stop leaves whole seeds"


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
        (FIT + "budget = {steps = 'x'}", "the budget of steps is 'x', but must be a finite number above 0"),
        (FIT + "seeds = 'x'", "seeds is 'x', but must be a whole number"),
        (FIT + "metric = ['exact']", r"metric is \['exact'\], but must be text or none"),
        (FIT + "match = {}", "match is {}, but must be text"),
        (FIT + "inside = [3]", r"inside is \[3\], but must be a list of texts"),
        (FIT + "budget = 3", "budget is 3, but must be a table"),
        ("recipe = 'x'\nvary = 3", "vary is 3, but must be a table"),
        ("recipe = 3\nvary = {a = [1]}", "recipe is 3, but must be the path of a recipe, or its tables"),
        ("recipe = {data = 3}\nvary = {a = [1]}", r"\[data\] is 3, but must be a table"),
        ("recipe = {data = {corpus = 'roles'}}\nvariant = 3", "variant is 3, but must be a list of tables"),
        ("recipe = {data = {corpus = 'roles'}}\nvariant = [3]", r"a \[\[variant\]\] is 3; it has a name"),
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
