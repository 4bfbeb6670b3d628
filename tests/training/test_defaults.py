"""What a recipe leaves open: the rates that were measured, the paper's own, and runs from before there was ``auto``."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clockhands.cli import main
from clockhands.model.presets import make_preset
from clockhands.training import Recipe, TrainingData, prepare, resume, train, vary_recipe
from clockhands.training.defaults import (
    compute_peak_rate,
    compute_warmup_steps,
    count_updates,
    export_last,
    fill_in_auto,
)
from clockhands.training.schedules import make_rate, paper
from tests.training.tiny import tables

ROOT = Path(__file__).resolve().parents[2]


def open_tables(**training: Any) -> dict[str, dict[str, Any]]:
    """Tables that say nothing of the rate and its warm-up."""
    return tables(learning_rate=None, warmup_steps=None, **training)


@pytest.fixture(scope="module")
def material() -> TrainingData:
    return prepare(Recipe.from_tables(tables()))


def test_the_papers_preset_has_the_papers_schedule() -> None:
    """Equation 3 with d_model 512 and 4000 updates of warm-up, over the paper's 100,000 updates."""
    given = {"data": {"corpus": "roles"}, "model": {"preset": "paper-base"}, "training": {"max_steps": 100_000}}
    chosen = fill_in_auto(Recipe.from_tables(given))
    assert chosen.training.warmup_steps == 4000
    ours, theirs = make_rate(chosen.training, 512, 100_000), paper(1.0, 512, 4000)
    assert [ours(s) for s in (1, 3999, 4000, 90_000)] == pytest.approx(
        [theirs(s) for s in (1, 3999, 4000, 90_000)], rel=1e-3
    )


def test_the_rate_follows_the_model() -> None:
    assert compute_peak_rate(make_preset("tiny")) == 8e-3
    assert compute_peak_rate(make_preset("tiny", {"d_model": 256})) == pytest.approx(2e-3)
    assert compute_peak_rate(make_preset("tiny", {"d_model": 16})) == 8e-3
    assert compute_peak_rate(make_preset("tiny", {"kind": "encoder"})) == 16e-3
    deep, shallow = (make_preset("tiny", {"norm": "post", "decoder_layers": layers}) for layers in (6, 3))
    assert compute_peak_rate(deep) == pytest.approx((4000 * 64) ** -0.5)
    assert compute_peak_rate(shallow) == pytest.approx(2 * compute_peak_rate(deep))
    assert compute_peak_rate(make_preset("tiny", {"norm": "post", "encoder_layers": 1, "decoder_layers": 1})) == 8e-3


@pytest.mark.parametrize(("updates", "expected"), [(3, 0), (20, 2), (500, 50), (40_000, 4000), (400_000, 4000)])
def test_the_warm_up_is_a_tenth_and_at_most_the_papers(updates: int, expected: int) -> None:
    assert compute_warmup_steps(updates, make_preset("tiny")) == expected


@pytest.mark.parametrize(
    ("layers", "updates", "expected"),
    [(6, 500, 1000), (6, 3000, 1000), (6, 20, 40), (6, 100_000, 4000), (4, 500, 666), (2, 500, 333), (2, 40_000, 4000)],
)
def test_post_norm_rises_slowly_and_deep_post_norm_more_slowly(layers: int, updates: int, expected: int) -> None:
    deep = make_preset("paper-base", {"encoder_layers": layers, "decoder_layers": layers})
    assert compute_warmup_steps(updates, deep) == expected
    assert compute_warmup_steps(updates, replace(deep, norm="pre")) == min(4000, updates // 10)


def test_a_cosine_has_time_to_fall() -> None:
    assert compute_warmup_steps(500, make_preset("paper-base"), "cosine") == 250
    assert compute_warmup_steps(3000, make_preset("paper-base"), "cosine") == 1000


def test_a_short_training_of_a_deep_post_norm_model_rises_to_its_end() -> None:
    """The cell of the grid that is best after 500 steps: 1e-3 at the end, reached in a line (docs/lab)."""
    model = {"preset": "paper-base", "d_model": 64, "num_heads": 4, "d_ff": 256}
    recipe = Recipe.from_tables({"data": {"corpus": "roles"}, "model": model, "training": {"max_steps": 500}})
    rate = make_rate(fill_in_auto(recipe).training, 64, 500)
    assert [rate(step) for step in (1, 250, 500)] == pytest.approx([2e-6, 5e-4, 1e-3], rel=0.02)


def test_only_what_is_left_open_is_filled() -> None:
    given = fill_in_auto(Recipe.from_tables(tables(warmup_steps=None)))
    assert (given.training.learning_rate, given.training.warmup_steps) == (0.01, 2)
    assert fill_in_auto(Recipe.from_tables(tables())) == Recipe.from_tables(tables())
    factor = fill_in_auto(Recipe.from_tables(tables(learning_rate=None, schedule="paper")))
    assert factor.training.learning_rate == 1.0


def test_weights_that_are_trained_already_move_more_gently() -> None:
    recipe = Recipe.from_tables(open_tables())
    begun = Recipe.from_tables({**recipe.tables, "training": {**recipe.tables["training"], "begin_from": "runs/other"}})
    assert fill_in_auto(begun).training.rate == fill_in_auto(recipe).training.rate / 4


def test_epochs_are_counted_as_the_trainer_counts_them(material: TrainingData, tmp_path: Path) -> None:
    recipe = Recipe.from_tables(open_tables(max_steps=None, epochs=2.5, accumulate=4))
    run = train(recipe, tmp_path / "run", material=material)
    assert count_updates(recipe, material) == run.record["step"] == 10
    assert run.recipe.training.warmup_steps == 1


def test_a_run_keeps_the_numbers_and_goes_on_with_them(material: TrainingData, tmp_path: Path) -> None:
    """A run that is made longer does not begin another warm-up."""
    run = train(open_tables(max_steps=20, save_steps=10), tmp_path / "run", material=material)
    written = tomllib.loads((run.path / "recipe.toml").read_text())["training"]
    assert (written["learning_rate"], written["warmup_steps"]) == (8e-3, 2)
    longer = resume(run.path, {"training.max_steps": 30}).recipe.training
    assert (longer.learning_rate, longer.warmup_steps) == (8e-3, 2)


def test_a_stored_plan_from_before_keeps_its_rate() -> None:
    """JSON has its missing rate as null."""
    stored = json.loads(json.dumps(Recipe.from_tables(tables(learning_rate="none", warmup_steps=0)).tables))
    assert stored["training"]["learning_rate"] is None
    assert fill_in_auto(Recipe.from_tables(stored)).training.rate == 5e-4


def test_what_is_left_open_stays_open_in_a_variant() -> None:
    recipe = Recipe.from_tables(open_tables())
    wide = vary_recipe(recipe, {"model.d_model": 256, "training.max_steps": 50})
    assert (fill_in_auto(wide).training.learning_rate, fill_in_auto(wide).training.warmup_steps) == (2e-3, 5)


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_the_recipes_leave_nothing_open(recipe: Path) -> None:
    """Their published results were measured with these numbers."""
    given = tomllib.loads(recipe.read_text())
    if "training" in given:
        assert {"learning_rate", "warmup_steps", "schedule"} <= given["training"].keys()
        assert {"tokens", "size"} & given["batches"].keys()


@pytest.mark.parametrize(("kind", "size"), [("decoder", 16), ("encoder", 64)])
def test_a_batch_has_a_size_that_fits_the_task(kind: str, size: int) -> None:
    text = {"data": {"corpus": "stdlib"}, "model": {"preset": "tiny", "kind": kind}, "training": {"max_steps": 1}}
    assert Recipe.from_tables(text).batches.size == size
    assert Recipe.from_tables({**text, "batches": {"tokens": 512}}).batches.size is None
    assert (
        Recipe.from_tables(tables()).batches.size == 16
        and Recipe.from_tables({**tables(), "batches": {}}).batches.size == 64
    )


def test_a_dry_run_shows_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--corpus", "roles", "--preset", "tiny", "--dry-run", "--set", "data.train=80"]
    assert main([*command, "training.max_steps=50"]) == 0
    shown = tomllib.loads(capsys.readouterr().out)["training"]
    assert (shown["learning_rate"], shown["warmup_steps"]) == (8e-3, 5)


@pytest.mark.parametrize(
    ("asked", "updates", "validates", "expected"),
    [
        ({}, 3000, True, (300, "lowest")),
        ({}, 640, True, (100, "lowest")),
        ({}, 100, True, (None, "last")),
        ({}, 3000, False, (None, "last")),
        ({"eval_steps": 7}, 40, True, (7, "lowest")),
        ({"export": "last"}, 3000, True, (300, "last")),
        ({"export": "lowest"}, 40, True, (4, "lowest")),
        ({"patience": 2}, 40, True, (4, "lowest")),
        ({"save_minutes": 0.0}, 3000, True, (300, "last")),
        ({"average": "last", "save_steps": 10}, 3000, True, (300, "last")),
    ],
)
def test_a_training_is_evaluated_ten_times_and_exports_the_lowest(
    asked: dict[str, Any], updates: int, validates: bool, expected: tuple[int | None, str]
) -> None:
    given = tables(**{"eval_steps": None, "save_steps": None, "max_steps": updates, **asked})
    training = fill_in_auto(Recipe.from_tables(given), validates=validates).training
    assert (training.eval_steps, training.export) == expected
    compared = export_last(Recipe.from_tables(given)).training
    assert (compared.eval_steps, compared.export) == (asked.get("eval_steps"), asked.get("export", "last"))
