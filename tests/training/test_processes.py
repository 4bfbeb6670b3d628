"""Runs in processes of their own: killed without warning and continued, and shared by two processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clockhands.training import Recipe, Run, resume, train, vary
from tests.training.tiny import tables

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def recipe_file(folder: Path, recipe: Recipe) -> str:
    path = folder / "recipe.toml"
    path.write_text(recipe.to_toml())
    return str(path)


def wait_for(path: Path, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.01)


def test_a_killed_run_continues_to_the_same_weights(tmp_path: Path) -> None:
    # Long enough not to be over before the signal arrives; killed wherever it happens to be after a checkpoint.
    recipe = Recipe.of(tables(max_steps=150, save_steps=10, eval_steps=30, log_steps=10))
    command = [sys.executable, "-m", "clockhands", "train", recipe_file(tmp_path, recipe), "--quiet", "--threads", "1"]
    run = tmp_path / "killed"
    process = subprocess.Popen([*command, "--out", str(run)], env=ENVIRONMENT)
    try:
        wait_for(run / "checkpoints/checkpoint-30", process)
        time.sleep(0.13)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not Run.open(run).finished
    assert not (run / "model.safetensors").exists()
    whole = train(vary(recipe, {"training.threads": 1}), tmp_path / "whole")
    continued = resume(run)
    assert (continued.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
    assert losses(continued) == losses(whole)


def losses(run: Run) -> list[tuple[int, str, float]]:
    """Everything in the record of a run but its speed."""
    return [
        (line["step"], name, value)
        for line in run.metrics()
        for name, value in line.items()
        if name not in ("step", "tokens_per_second")
    ]


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("accelerate", marks=pytest.mark.slow)])
def test_two_processes_see_the_losses_of_one(tmp_path: Path, launcher: str) -> None:
    # 17 does not divide by two, and one batch of the epoch has a single example: one process gets ballast there.
    recipe = vary(
        Recipe.of(tables(max_steps=20, log_steps=1, save_steps=10)),
        {"model.dropout": 0.0, "batches.size": 17, "batches.bucketed": False},
    )
    one = train(recipe, tmp_path / "one")
    start = {
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29513"],
        "accelerate": [
            *[sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"],
            *["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"],
            *["--main_process_port", "29514"],
        ],
    }[launcher]
    shared = tmp_path / "two"
    command = [*start, "-m", "clockhands", "train", recipe_file(tmp_path, recipe), "--quiet", "--out", str(shared)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    two = Run.open(shared)
    assert two.record["processes"] == 2
    for ours, theirs in zip(two.metrics(), one.metrics(), strict=True):
        assert ours["step"] == theirs["step"]
        key = "loss" if "loss" in ours else "validation_loss"
        assert ours[key] == pytest.approx(theirs[key], rel=2e-4)
    assert json.loads((shared / "checkpoints/checkpoint-20/trainer_state.json").read_text())["global_step"] == 20
