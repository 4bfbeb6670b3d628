"""A trial for real: what it measures, that it can be repeated, and that a failure is a result."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clockhands.comparison.execution import make_job
from clockhands.comparison.results import Comparison, Cost
from clockhands.comparison.trial import Trial
from clockhands.comparison.trial_runner import draw_by_name, run_trial
from clockhands.errors import BusyError
from clockhands.files import lock_folder
from clockhands.runs.recipe import make_recipe
from clockhands.training import prepare, vary_recipe
from clockhands.training.model import build
from tests.comparison.planted import plan
from tests.training.tiny import tables

COSTS = {name: Cost(parameters=1, steps=6, flops=1, seconds=0.1, changes={}) for name in ("sinusoidal", "learned")}


def test_a_trial_measures_what_it_says(tmp_path: Path) -> None:
    made = plan(target=100.0, inside=["loudness"])
    trial = run_trial(make_job(Comparison(made, COSTS), "sinusoidal", 1, tmp_path, 1, False))
    assert trial.finished and trial.steps == 6
    assert len(trial.items) == 20 and trial.items_N.mean() == pytest.approx(trial.scores["exact"])
    assert trial.curve[-1].step == 6 and trial.curve[-1].validation_loss > 0
    assert trial.reached.step == 4
    named = {"word over position", "position's share", "length of a word's row", "length of a position's row"}
    assert trial.inside.before.keys() == trial.inside.after.keys() == named
    assert trial.peak_mib > 10 and trial.parameters > 1000
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial
    assert not (tmp_path / "running" / "0-1").exists()
    again = run_trial(make_job(Comparison(made, COSTS), "sinusoidal", 1, tmp_path, 1, True))
    assert again.curve == trial.curve and again.items == trial.items
    assert (tmp_path / "running" / "0-1" / "model.safetensors").is_file()
    assert not list((tmp_path / "running" / "0-1" / "checkpoints").iterdir()), "no time is spent on what nobody reads"


def test_a_trial_keeps_the_weights_that_it_begins_with(tmp_path: Path) -> None:
    """Drawing by name, which pairs the seeds, must not draw over them."""
    job = make_job(Comparison(plan(), COSTS), "sinusoidal", 1, tmp_path, 1, True)
    first = run_trial(job)
    base = shutil.copytree(job.folder, tmp_path / "base")
    training = {**job.tables["training"], "begin_from": str(base), "learning_rate": 1e-12, "max_steps": 1}
    again = run_trial(replace(job, tables={**job.tables, "training": training}))
    assert again.finished and again.items == first.items
    assert again.curve[-1].validation_loss == pytest.approx(first.curve[-1].validation_loss, rel=1e-4)


def test_a_run_that_diverges_and_one_that_fails_are_results(tmp_path: Path) -> None:
    wild = plan(vary={"training.learning_rate": [0.01, 1e30]}, metric="loss")
    names = [variant.name for variant in wild.variants]
    costs = dict(zip(names, COSTS.values(), strict=True))
    diverged = run_trial(make_job(Comparison(wild, costs), names[1], 1, tmp_path, 1, False))
    assert diverged.status == "diverged" and "training stopped" in diverged.error
    assert Trial.from_dict(diverged.to_dict()) == diverged
    job = make_job(Comparison(wild, costs), names[0], 1, tmp_path, 1, False)
    failed = run_trial(replace(job, tables={**job.tables, "data": {"corpus": "text", "train": str(tmp_path / "no")}}))
    assert failed.status == "failed" and failed.error


def test_a_trial_that_another_process_runs_is_no_result(tmp_path: Path) -> None:
    job = make_job(Comparison(plan(), COSTS), "sinusoidal", 1, tmp_path, 1, False)
    found: list[type[Exception]] = []

    def another() -> None:
        try:
            run_trial(job)
        except BusyError as fault:
            found.append(type(fault))

    with lock_folder(Path(job.folder)):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    assert found == [BusyError]


def test_weights_agree_across_variants_and_differ_across_seeds() -> None:
    recipe = make_recipe(tables(), {})
    material = prepare(recipe)
    drawn = {}
    for scheme in ("sinusoidal", "learned", "t5"):
        for seed in (1, 2):
            torch.manual_seed(hash(scheme) % 1000)
            model = build(vary_recipe(recipe, {"position.scheme": scheme}), material.tokenizers)
            draw_by_name(model, seed)
            drawn[scheme, seed] = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    plain = drawn["sinusoidal", 1]
    for scheme in ("learned", "t5"):
        other = drawn[scheme, 1]
        assert set(other) > set(plain), "a learned scheme has parameters of its own"
        assert all(torch.equal(plain[name], other[name]) for name in plain)
    changed = [
        name for name in plain if plain[name].dim() > 1 and not torch.equal(plain[name], drawn["sinusoidal", 2][name])
    ]
    assert len(changed) == sum(weight.dim() > 1 for weight in plain.values())


def test_drawing_by_name_keeps_the_law_of_the_weights() -> None:
    recipe = make_recipe({**tables(), "model": {"preset": "tiny", "encoder_layers": 1, "decoder_layers": 1}}, {})
    material = prepare(recipe)
    model = build(recipe, material.tokenizers)
    before = {name: float(weight.std()) for name, weight in model.named_parameters() if weight.numel() > 4000}
    draw_by_name(model, 7)
    assert before
    for name, weight in model.named_parameters():
        if name in before:
            assert abs(float(weight.std()) / before[name] - 1) < 0.05
