"""Training goes on exactly where it was stopped, and what it gives is said with its interval."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clockhands.errors import CheckpointError, UsageError
from clockhands.extension import Tuning, tune, tuning
from clockhands.extension.tuning import make_tuning_finding
from clockhands.models import LanguageModel, open_language_model
from tests.extension.test_choose import make_judged
from tests.runs.tiny import LENGTH, save_model

LONG = 4 * LENGTH
STREAM = np.resize(np.arange(5, 60), 3000)


def run_steps(folder: Path, plan: Tuning, **more: Any) -> tuple[LanguageModel, list[float]]:
    model = open_language_model(folder)
    return model, tune(model, STREAM, plan, LENGTH, LONG, **more)


@pytest.mark.parametrize("windows", ["skip", "full"])
def test_a_stopped_training_goes_on_exactly(windows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_model(tmp_path / "model", "llama", attention_dropout=0.1)
    plan = Tuning(8, windows, batch=2, learning_rate=3e-3)
    whole, losses = run_steps(folder, plan)
    assert losses[-1] < losses[0] and not whole.model.training
    step = tuning._take_step

    def stop(*given: Any) -> float:
        if given[-1] == 5:
            raise KeyboardInterrupt
        return step(*given)

    monkeypatch.setattr(tuning, "_take_step", stop)
    with pytest.raises(KeyboardInterrupt):
        run_steps(folder, plan, checkpoint=tmp_path / "state.pt", signature="a")
    monkeypatch.setattr(tuning, "_take_step", step)
    again, resumed = run_steps(folder, plan, checkpoint=tmp_path / "state.pt", signature="a")
    assert resumed == losses
    for name, weight in again.model.state_dict().items():
        assert torch.equal(weight, whole.model.state_dict()[name]), name
    _, other = run_steps(folder, replace(plan, steps=2), checkpoint=tmp_path / "state.pt", signature="b")
    assert len(other) == 2, "a checkpoint of something else is left aside"


def test_skip_wise_positions_reach_all_over_the_new_length() -> None:
    reached = torch.cat([tuning._draw_positions(Tuning(1), LENGTH, LONG, step).flatten() for step in range(20)])
    assert int(reached.max()) > LONG - LENGTH and int(reached.max()) < LONG and int(reached.min()) == 0


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="takes no position_ids"):
        run_steps(save_model(tmp_path / "mpt", "mpt"), Tuning(1))
    streamed = open_language_model(save_model(tmp_path / "streamed", "llama"), weights="streamed")
    with pytest.raises(UsageError, match="are left in their files; to train, give --weights memory"):
        tune(streamed, STREAM, Tuning(1), LENGTH, LONG)
    with pytest.raises(UsageError, match="the learning rate is 3; it lies between 0 and 1"):
        Tuning(1, learning_rate=3)
    with pytest.raises(UsageError, match="training takes 1 step"):
        Tuning(0)
    (tmp_path / "state.pt").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="cannot be read, so training cannot go on"):
        run_steps(save_model(tmp_path / "llama", "llama"), Tuning(1), checkpoint=tmp_path / "state.pt")


@pytest.mark.parametrize(
    ("change", "cost", "said", "light"),
    [
        (-0.5, 0.0, ("the loss falls", "shown to be below the guard of 1%"), "good"),
        (0.5, 0.0, ("the loss rises", "shown to be below"), "warn"),
        (0.0, 0.05, ("is not shown to change", "not shown to be below 1%"), "warn"),
    ],
)
def test_the_sentence_says_what_the_numbers_show(change: float, cost: float, said: tuple[str, str], light: str) -> None:
    before, after = make_judged("a", 3.0, 0.0), make_judged("a", 3.0 + change, cost)
    noise = np.random.default_rng(0).normal(0, 0.1, after.drift.losses_NR.shape)
    after = replace(after, drift=replace(after.drift, losses_NR=after.drift.losses_NR + noise))
    finding = make_tuning_finding(before, after, (3.0, 2.9), Tuning(2))
    assert all(part in finding.verdict for part in said) and finding.light == light
