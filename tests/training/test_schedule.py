"""What a recipe leaves open: the rates that were measured, the paper's own, and runs from before there was ``auto``."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import tomllib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_inverse_sqrt_schedule

from clockhands.comparison.execution import make_job
from clockhands.comparison.plan import make_plan
from clockhands.comparison.results import Comparison, Cost
from clockhands.comparison.trial_runner import run_trial
from clockhands.errors import ConfigError
from clockhands.model.config import make_preset
from clockhands.runs import Run
from clockhands.runs.recipe.sections import Training
from clockhands.training import Recipe, TrainingData, TrainingStopped, resume, train, vary_recipe
from clockhands.training.schedule import (
    NARROWEST,
    Precision,
    choose_precision,
    compute_peak_rate,
    compute_warmup_steps,
    count_updates,
    export_last,
    fill_in_auto,
    fill_in_for_text,
    make_rate,
    multiplies_in_bf16,
    read_precision,
)
from tests.shared import Logged
from tests.training.test_session import on_step, weights
from tests.training.tiny import tables

ROOT = Path(__file__).resolve().parents[2]


def open_tables(**training: Any) -> dict[str, dict[str, Any]]:
    """Tables that say nothing of the rate and its warm-up."""
    return tables(learning_rate=None, warmup_steps=None, **training)


def shape(schedule: str, rate: float, warmup: int, total: int = 10, **fields: float) -> Callable[[int], float]:
    """The rate of a recipe with this schedule, for a model of width 512."""
    fields = {"learning_rate": rate, "warmup_steps": warmup, **fields}
    return make_rate(Training(schedule=schedule, **fields), 512, total)  # type: ignore[arg-type]


def test_the_papers_preset_has_the_papers_schedule() -> None:
    """Equation 3 with d_model 512 and 4000 updates of warm-up, over the paper's 100,000 updates."""
    given = {"data": {"corpus": "roles"}, "model": {"preset": "paper-base"}, "training": {"max_steps": 100_000}}
    chosen = fill_in_auto(Recipe.from_tables(given))
    assert chosen.training.warmup_steps == 4000
    ours, theirs = make_rate(chosen.training, 512, 100_000), shape("paper", 1.0, 4000)
    steps = (1, 3999, 4000, 90_000)
    assert [ours(s) for s in steps] == pytest.approx([theirs(s) for s in steps], rel=1e-3)


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


def test_a_training_of_no_length_stops_when_the_loss_falls_no_more(material: TrainingData, tmp_path: Path) -> None:
    """15 batches of 16 and two a step: 8 updates an epoch, so that 40 epochs are fewer than the shortest bound."""
    recipe = Recipe.from_tables(tables(max_steps=None, save_steps=None, eval_steps=None, learning_rate=0.2))
    filled = fill_in_for_text(recipe, material).training
    assert (filled.max_steps, filled.patience, filled.eval_steps, filled.export) == (1000, 3, 100, "lowest")
    given = Recipe.from_tables(tables(max_steps=None, save_steps=None, eval_steps=20, patience=1, learning_rate=0.3))
    run = train(given, tmp_path / "run", material=material)
    step, losses = run.record["step"], run.validation_losses
    assert run.finished and 8 < step < 1000 and step == max(losses), "it ends with an evaluation, after many epochs"
    assert losses[step] >= min(loss for at, loss in losses.items() if at < step), "the loss falls no more"
    with pytest.raises(ConfigError, match=r"max_steps is missing, or training\.epochs: there is no validation"):
        fill_in_for_text(recipe, replace(material, validation=None))


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
    wanted = "auto" if asked.get("patience") or asked.get("export") == "lowest" else asked.get("eval_steps")
    assert (compared.eval_steps, compared.export) == (wanted, asked.get("export", "last"))


def test_the_papers_schedule_has_its_published_peak() -> None:
    of = shape("paper", 1.0, 4000)
    assert of(4000) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert of(4000) == max(of(step) for step in range(1, 20_000))
    assert of(1) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert of(100_000) == pytest.approx(512**-0.5 / math.sqrt(100_000))
    assert shape("paper", 2.0, 5)(5) == pytest.approx(2 * 512**-0.5 * 5**-0.5)


def test_inverse_sqrt_is_that_of_fairseq() -> None:
    # fairseq's inverse_sqrt with lr 0.005, warmup-updates 2000, warmup-init-lr 1e-7.
    of = shape("inverse-sqrt", 0.005, 2000, warmup_from=1e-7)
    assert of(1000) == pytest.approx(1e-7 + 1000 * (0.005 - 1e-7) / 2000)
    assert of(2000) == pytest.approx(0.005)
    assert of(8000) == pytest.approx(0.005 * 2000**0.5 * 8000**-0.5)
    assert shape("inverse-sqrt", 1.0, 0)(4) == 0.5


@pytest.mark.parametrize("name", ["inverse-sqrt", "cosine"])
def test_the_shapes_are_those_of_transformers(name: str) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    if name == "cosine":
        theirs = get_cosine_schedule_with_warmup(optimizer, 10, 100)
    else:
        theirs = get_inverse_sqrt_schedule(optimizer, 10)
    ours = shape(name, 0.1, 10, 100)
    for step in range(1, 100):
        optimizer.step()
        theirs.step()
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0])


def test_cosine_ends_at_the_final_rate_and_stays_there() -> None:
    of = shape("cosine", 1e-3, 100, 2000, final_rate=1e-4)
    assert (of(100), of(1050)) == (pytest.approx(1e-3), pytest.approx(5.5e-4))
    assert of(2000) == of(3000) == pytest.approx(1e-4)


def test_constant_rises_once() -> None:
    assert [shape("constant", 1.0, 4)(step) for step in (1, 2, 4, 99)] == [0.25, 0.5, 1.0, 1.0]
    assert shape("constant", 0.3, 0)(1) == 0.3


CPU, TINY = torch.device("cpu"), make_preset("tiny")


def let_processor_have_bf16(monkeypatch: pytest.MonkeyPatch, has: bool) -> None:
    """What torch says of the processor; the products are right, and slow, where it is emulated."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)


@pytest.mark.parametrize(("has", "name"), [(True, "bf16"), (False, "fp32")])
def test_auto_takes_bf16_on_a_cpu_that_has_it(has: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    let_processor_have_bf16(monkeypatch, has)
    assert choose_precision(Training(max_steps=1), make_preset("paper-base"), CPU) == Precision(name, "cpu")
    assert choose_precision(Training(max_steps=1), TINY, CPU) == Precision("fp32", "cpu"), "too narrow to gain"


def test_torch_reads_the_processor_as_the_kernel_does() -> None:
    """The flags of /proc/cpuinfo are an answer of their own."""
    flags = Path("/proc/cpuinfo")
    if not flags.is_file() or "avx512" not in flags.read_text():
        pytest.skip("no /proc/cpuinfo with AVX-512 here")
    known = flags.read_text().split()
    assert multiplies_in_bf16(CPU) == ("avx512_bf16" in known or "amx_tile" in known)


def test_releases_of_torch_without_the_question_compute_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert not multiplies_in_bf16(CPU)


def test_what_is_asked_for_is_taken_and_emulated_bf16_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, logged: Logged
) -> None:
    let_processor_have_bf16(monkeypatch, False)
    assert choose_precision(Training(max_steps=1, precision="bf16"), TINY, CPU) == Precision("bf16", "cpu")
    assert "'bf16', which this processor only emulates" in logged.text
    logged.records.clear()
    let_processor_have_bf16(monkeypatch, True)
    choose_precision(Training(max_steps=1, precision="bf16"), TINY, CPU)
    let_processor_have_bf16(monkeypatch, False)
    choose_precision(Training(max_steps=1, precision="fp32"), TINY, CPU)
    assert logged.text == ""


def test_a_run_computes_as_decided_and_its_record_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(name: str, precision: str) -> Run:
        recipe = tables(precision=precision, max_steps=6)
        model = {**recipe["model"], "d_model": NARROWEST, "d_ff": NARROWEST}
        return train({**recipe, "model": model}, tmp_path / name)

    asked = trained("asked", "bf16")
    let_processor_have_bf16(monkeypatch, True)
    found = trained("auto", "auto")
    assert weights(found) == weights(asked)
    assert found.record["precision"] == {"name": "bf16", "device": "cpu"}
    let_processor_have_bf16(monkeypatch, False)
    assert weights(trained("emulated", "auto")) != weights(asked)


def test_a_resumed_run_goes_on_as_it_began_whatever_would_be_chosen_now(
    material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clockhands.training.schedule.NARROWEST", 1)
    let_processor_have_bf16(monkeypatch, True)
    whole = train(tables(precision="auto"), tmp_path / "whole", material=material)
    assert whole.record["precision"]["name"] == "bf16"
    with monkeypatch.context() as patch, pytest.raises(TrainingStopped):
        on_step(11, lambda: os.kill(os.getpid(), signal.SIGINT), patch)
        train(tables(precision="auto"), tmp_path / "run", material=material)
    let_processor_have_bf16(monkeypatch, False)
    assert weights(resume(tmp_path / "run")) == weights(whole)


def test_a_run_killed_after_its_recipe_was_written_knows_its_precision(
    material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("clockhands.training.session.build", die)
    with pytest.raises(MemoryError):
        train(tables(precision="auto"), tmp_path / "run", material=material)
    assert Run.from_folder(tmp_path / "run").record["precision"] == {"name": "fp32", "device": "cpu"}


def test_a_run_that_goes_on_on_another_kind_of_device_chooses_anew() -> None:
    moved = {"precision": {"name": "bf16", "device": "cuda"}}
    assert read_precision(moved, Training(max_steps=1), TINY, CPU) == Precision("fp32", "cpu")


def test_trials_of_a_comparison_do_not_ask_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or else the machine that happens to train a variant could decide what it computes in."""
    let_processor_have_bf16(monkeypatch, True)
    monkeypatch.setattr("clockhands.training.schedule.NARROWEST", 1)
    recipe = tables(precision="auto", max_steps=2, save_steps=None, eval_steps=None)
    plan = make_plan(recipe, vary={"position.scheme": ["rope", "none"]}, seeds=1, budget={"steps": 2})
    costs = {name: Cost(1, 2, 1, 0.1, {}) for name in ("rope", "none")}
    trial = run_trial(make_job(Comparison(plan, costs), "rope", 0, tmp_path, 1, True))
    assert trial.finished, trial
    (record,) = tmp_path.glob("running/*/run.json")
    assert json.loads(record.read_text())["precision"]["name"] == "fp32"


def train_beside_others(folder: Path) -> None:
    train(tables(precision="auto", max_steps=20), folder)


@pytest.mark.slow
def test_the_same_recipe_ends_with_the_same_bits_beside_four_other_trainings(tmp_path: Path) -> None:
    """Nothing that changes a result is decided by a clock: not the precision, not a kernel, not a batch."""
    train_beside_others(tmp_path / "alone")
    folders = [tmp_path / f"crowded-{number}" for number in range(5)]
    with ProcessPoolExecutor(len(folders), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(train_beside_others, folders))
    assert {weights(folder) for folder in folders} == {weights(tmp_path / "alone")}
