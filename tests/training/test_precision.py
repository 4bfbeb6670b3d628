"""Which precision a run computes in: decided by a measured speed-up (injected here), told, and kept for a resume."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from clockhands.comparison.execution import make_job
from clockhands.comparison.plan import make_plan
from clockhands.comparison.results import Comparison, Cost
from clockhands.comparison.trial_runner import run_trial
from clockhands.model.presets import make_preset
from clockhands.runs import Run
from clockhands.runs.recipe.sections import Training
from clockhands.training import Recipe, TrainingData, TrainingStopped, precision, prepare, resume, train
from clockhands.training.precision import Precision, choose_precision, measure_speedup, read_precision
from tests.shared import Logged
from tests.training.test_start import on_step, weights
from tests.training.tiny import tables

CPU, TINY = torch.device("cpu"), make_preset("tiny")


@pytest.fixture(scope="module")
def material() -> TrainingData:
    return prepare(Recipe.from_tables(tables()))


def inject(monkeypatch: pytest.MonkeyPatch, speedup: float | None) -> None:
    """Let the measurement find this; None lets it fail, so that nobody may measure."""

    def measured(model: Any) -> float:
        assert speedup is not None, "nothing may be measured here"
        return speedup

    monkeypatch.setattr(precision, "measure_speedup", measured)


@pytest.mark.parametrize(("speedup", "name"), [(2.3, "bf16"), (1.5, "bf16"), (1.2, "fp32"), (0.04, "fp32")])
def test_auto_takes_bf16_on_a_cpu_where_it_is_much_faster(
    speedup: float, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(monkeypatch, speedup)
    found = choose_precision(Training(max_steps=1), TINY, CPU)
    assert found == Precision(name, "cpu", speedup)
    assert f"computing in {name}: bf16 is {speedup} times as fast as fp32 here" in found.sentence


def test_what_is_asked_for_is_taken_and_slow_bf16_is_warned_of(monkeypatch: pytest.MonkeyPatch, logged: Logged) -> None:
    inject(monkeypatch, 0.04)
    assert choose_precision(Training(max_steps=1, precision="bf16"), TINY, CPU) == Precision("bf16", "cpu")
    assert "'bf16', which is slower than fp32 on this processor (0.04 times its speed" in logged.text
    logged.records.clear()
    inject(monkeypatch, 1.1)
    choose_precision(Training(max_steps=1, precision="bf16"), TINY, CPU)
    inject(monkeypatch, None)
    assert choose_precision(Training(max_steps=1, precision="fp32"), TINY, CPU).sentence == ""
    assert logged.text == ""


def test_a_run_computes_as_decided_and_its_record_says_so(
    material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = train(tables(precision="bf16", max_steps=6), tmp_path / "asked", material=material)
    inject(monkeypatch, 2.0)
    found = train(tables(precision="auto", max_steps=6), tmp_path / "auto", material=material, progress=True)
    assert weights(found) == weights(asked)
    assert found.record["precision"] == {"name": "bf16", "device": "cpu", "speedup": 2.0}
    assert "computing in bf16: bf16 is 2 times as fast as fp32 here" in capsys.readouterr().err
    inject(monkeypatch, 1.0)
    assert weights(train(tables(precision="auto", max_steps=6), tmp_path / "slow", material=material)) != weights(asked)


def test_a_resumed_run_goes_on_as_it_began_whatever_would_be_measured_now(
    material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(monkeypatch, 2.0)
    whole = train(tables(precision="auto"), tmp_path / "whole", material=material)
    with monkeypatch.context() as patch, pytest.raises(TrainingStopped):
        on_step(11, lambda: os.kill(os.getpid(), signal.SIGINT), patch)
        train(tables(precision="auto"), tmp_path / "run", material=material)
    inject(monkeypatch, None)
    assert weights(resume(tmp_path / "run")) == weights(whole)


def test_a_run_killed_after_its_recipe_was_written_knows_its_precision(
    material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(monkeypatch, 2.0)

    def die(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("clockhands.training.session.build", die)
    with pytest.raises(MemoryError):
        train(tables(precision="auto"), tmp_path / "run", material=material)
    assert Run.from_folder(tmp_path / "run").record["precision"]["name"] == "bf16"


def test_runs_from_before_there_was_a_measurement_and_other_devices_measure_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inject(monkeypatch, None)
    auto = Training(max_steps=1)
    assert read_precision({}, auto, TINY, CPU) == Precision("fp32", "cpu")
    moved = {"precision": {"name": "bf16", "device": "cuda", "speedup": None}}
    assert read_precision(moved, auto, TINY, CPU) == Precision("fp32", "cpu")


def test_trials_of_a_comparison_never_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or else the load of the machine could decide which of two variants computes in bf16."""
    inject(monkeypatch, None)
    recipe = tables(precision="auto", max_steps=2, save_steps=None, eval_steps=None)
    plan = make_plan(recipe, vary={"position.scheme": ["rope", "none"]}, seeds=1, budget={"steps": 2})
    costs = {name: Cost(1, 2, 1, 0.1, {}) for name in ("rope", "none")}
    trial = run_trial(make_job(Comparison(plan, costs), "rope", 0, tmp_path, 1, True))
    assert trial.finished, trial
    (record,) = tmp_path.glob("running/*/run.json")
    assert json.loads(record.read_text())["precision"]["name"] == "fp32"


def test_the_shortest_times_are_compared_and_a_hopeless_case_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[bool] = []

    def step(layer: Any, x: Any, *, low: bool) -> float:
        spent.append(low)
        slow = 3.0 if len(spent) == 3 else 1.0  # another process was in the way once
        return 0.25 * slow if low else 1.0 * slow

    monkeypatch.setattr(precision, "_step", step)
    assert measure_speedup(TINY) == 4.0
    assert len(spent) == 2 * (1 + precision.ROUNDS)
    spent.clear()
    monkeypatch.setattr(precision, "_step", lambda layer, x, *, low: (spent.append(low), 20.0 if low else 1.0)[1])
    assert measure_speedup(TINY) == 0.05
    assert len(spent) == 4


def test_measuring_is_bounded_and_spends_no_random_number(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    real = precision._step

    def step(layer: torch.nn.Module, x: torch.Tensor, *, low: bool) -> float:
        seen.extend(list(weight.shape) for weight in layer.parameters() if weight.dim() == 2)
        return real(layer, x, low=low)

    monkeypatch.setattr(precision, "_step", step)
    monkeypatch.setattr(precision, "ROUNDS", 1)
    before = torch.get_rng_state()
    speedup = measure_speedup(make_preset("paper-base"))
    assert speedup > 0 and math.isfinite(speedup)
    assert max(map(max, seen)) == 4 * precision.WIDEST
    assert torch.equal(torch.get_rng_state(), before)
