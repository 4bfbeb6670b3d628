"""Which precision a run computes in: decided by what the hardware has, never by a clock, and kept for a resume."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from clockhands.comparison.execution import make_job
from clockhands.comparison.plan import make_plan
from clockhands.comparison.results import Comparison, Cost
from clockhands.comparison.trial_runner import run_trial
from clockhands.model.config import TransformerConfig, make_preset
from clockhands.runs import Run
from clockhands.runs.recipe.sections import Training
from clockhands.training import TrainingData, TrainingStopped, resume, train
from clockhands.training.precision import NARROWEST, Precision, choose_precision, multiplies_in_bf16, read_precision
from tests.shared import Logged
from tests.training.test_session import on_step, weights
from tests.training.tiny import tables

CPU, TINY = torch.device("cpu"), make_preset("tiny")


def wide() -> TransformerConfig:
    return make_preset("paper-base")


def let_processor_have_bf16(monkeypatch: pytest.MonkeyPatch, has: bool) -> None:
    """What torch says of the processor; the products are right, and slow, where it is emulated."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)


@pytest.mark.parametrize(("has", "name"), [(True, "bf16"), (False, "fp32")])
def test_auto_takes_bf16_on_a_cpu_that_has_it(has: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    let_processor_have_bf16(monkeypatch, has)
    assert choose_precision(Training(max_steps=1), wide(), CPU) == Precision(name, "cpu")
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
    monkeypatch.setattr("clockhands.training.precision.NARROWEST", 1)
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
    monkeypatch.setattr("clockhands.training.precision.NARROWEST", 1)
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
