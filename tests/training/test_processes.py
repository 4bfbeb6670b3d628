"""Runs in processes of their own: killed without warning and continued, and shared by two processes."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers

from clockhands.runs import Run
from clockhands.runs.folder import add_facts
from clockhands.training import Recipe, resume, train, vary_recipe
from tests.training.launching import Launcher
from tests.training.tiny import tables

ROOT = Path(__file__).parents[2]
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


@pytest.mark.slow
def test_a_killed_command_continues_to_the_same_weights(tmp_path: Path) -> None:
    # tests/training/test_killed.py kills forks of one process, and these at every file; here it is the whole command.
    # Long enough not to be over before the signal arrives; killed wherever it happens to be after a checkpoint.
    recipe = Recipe.from_tables(tables(max_steps=80, save_steps=10, eval_steps=40, log_steps=10))
    command = [sys.executable, "-m", "clockhands", "train", recipe_file(tmp_path, recipe), "--quiet", "--threads", "1"]
    run = tmp_path / "killed"
    process = subprocess.Popen([*command, "--out", str(run)], env=ENVIRONMENT)
    try:
        wait_for(run / "checkpoints/checkpoint-20", process)
        time.sleep(0.13)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not Run.from_folder(run).finished
    assert not (run / "model.safetensors").exists()
    whole = train(vary_recipe(recipe, {"training.threads": 1}), tmp_path / "whole")
    continued = resume(run)
    assert (continued.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
    assert losses(continued) == losses(whole)


@pytest.mark.slow
def test_a_terminal_that_is_closed_stops_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    recipe = Recipe.from_tables(tables(max_steps=1_000_000, log_steps=1, save_steps=None, eval_steps=None))
    out = tmp_path / "run"
    command = [sys.executable, "-m", "clockhands", "train", recipe_file(tmp_path, recipe), "--out", str(out)]
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, command, ENVIRONMENT)
    shown = b""
    while b"tokens/s" not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    step = Run.from_folder(out).record["step"]
    assert Run.from_folder(out).checkpoints[-1].name == f"checkpoint-{step}"
    assert resume(out, {"training.max_steps": step + 1}).finished


def losses(run: Run) -> list[tuple[int, str, float]]:
    """Everything in the record of a run but its speed."""
    return [
        (line["step"], name, value)
        for line in run.metrics
        for name, value in line.items()
        if name not in ("step", "tokens_per_second")
    ]


TRAIN = ["train", "--quiet"]
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "accelerate": [
        *["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"],
        *["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "29514"],
    ],
}


def in_two_processes(launcher: str, *words: str) -> None:
    command = [sys.executable, "-m", *LAUNCHERS[launcher], "-m", "clockhands", *words]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def odd() -> Recipe:
    """17 does not divide by two, and one batch of the epoch has a single example: one process gets ballast there.

    Learned numbers are among the parameters, which cannot be divided.
    """
    changes = {"model.dropout": 0.0, "batches.size": 17, "batches.bucketed": False, "training.threads": 1}
    numbers = {"model.token_scale": "learned", "position.learned_amplitude": True}
    return vary_recipe(Recipe.from_tables(tables(max_steps=20, log_steps=1, save_steps=10)), {**changes, **numbers})


@pytest.fixture(scope="module")
def one(odd: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same batches in one process."""
    return train(odd, tmp_path_factory.mktemp("runs") / "one")


def check_equal(two: Run, one: Run, processes: int = 2) -> None:
    """The losses of every step, and the weights, up to the order of sums."""
    assert two.record["processes"] == processes
    for ours, theirs in zip(two.metrics, one.metrics, strict=True):
        assert ours["step"] == theirs["step"]
        key = "loss" if "loss" in ours else "validation_loss"
        assert ours[key] == pytest.approx(theirs[key], rel=1e-5)
    weights, expected = two.model.state_dict(), one.model.state_dict()
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def launch() -> Iterator[Launcher]:
    """Start trainings in two processes each, as torchrun does, without its three seconds of imports in each."""
    launcher = Launcher(ENVIRONMENT)
    yield launcher
    launcher.close()


def test_two_processes_learn_what_one_learns(odd: Recipe, one: Run, tmp_path: Path, launch: Launcher) -> None:
    launch(*TRAIN, recipe_file(tmp_path, odd), "--out", str(tmp_path / "two"))
    check_equal(Run.from_folder(tmp_path / "two"), one)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_commands_that_start_two_processes(odd: Recipe, one: Run, tmp_path: Path, launcher: str) -> None:
    in_two_processes(launcher, *TRAIN, recipe_file(tmp_path, odd), "--out", str(tmp_path / "two"))
    check_equal(Run.from_folder(tmp_path / "two"), one)


@pytest.mark.slow
@pytest.mark.skipif(
    transformers.__version__.startswith("5.17"),
    reason="transformers 5.17 does not open the optimiser of a divided training on a CPU",
)
def test_a_divided_model_learns_what_a_whole_one_learns_and_continues(
    odd: Recipe, one: Run, tmp_path: Path, launch: Launcher
) -> None:
    run, recipe = Run(tmp_path / "two"), recipe_file(tmp_path, vary_recipe(odd, {"training.sharded": True}))
    launch(*TRAIN, recipe, "--out", str(run.path), counted=run.path)
    check_equal(run, one)
    kept = [int((tmp_path / f"two.{rank}").read_text()) for rank in range(2)]
    assert max(kept) < 0.6 * one.record["parameters"] < sum(kept), "each process keeps its part, not all"
    assert sizes(run) == sizes(one)
    whole, logged = (run.path / "model.safetensors").read_bytes(), losses(run)
    shutil.rmtree(run.path / "checkpoints/checkpoint-20")
    (run.path / "model.safetensors").unlink()
    add_facts(run.path, finished=False)
    launch(*TRAIN, "--resume", str(run.path))
    assert (run.path / "model.safetensors").read_bytes() == whole
    assert losses(run) == logged


@pytest.mark.slow
def test_two_processes_begin_with_the_weights_of_another_run(one: Run, tmp_path: Path) -> None:
    changes = {"begin_from": str(one.path), "learning_rate": 1e-12, "max_steps": 1, "sharded": True, "save_steps": None}
    recipe = vary_recipe(one.recipe, {f"training.{key}": value for key, value in changes.items()})
    in_two_processes("torchrun", *TRAIN, recipe_file(tmp_path, recipe), "--out", str(tmp_path / "two"))
    weights, expected = Run(tmp_path / "two").model.state_dict(), one.model.state_dict()
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)


COMPILED = """
import sys
import torch
from torch._dynamo.utils import counters
from clockhands.training import train
torch._dynamo.config.fail_on_recompile_limit_hit = True
train(*sys.argv[1:])
assert counters["stats"]["unique_graphs"] > 0
"""


@pytest.mark.slow
def test_a_compiled_model_learns_what_an_uncompiled_one_learns(tmp_path: Path) -> None:
    # In a process of its own: the checks of annotations that tests add cannot be traced.
    changes = {"model.dropout": 0.0, "training.threads": 1}
    recipe = vary_recipe(Recipe.from_tables(tables(max_steps=8, log_steps=1, save_steps=None, eval_steps=4)), changes)
    file, out = recipe_file(tmp_path, vary_recipe(recipe, {"training.compile": True})), str(tmp_path / "compiled")
    command = [sys.executable, "-c", COMPILED, file, out]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    check_equal(Run.from_folder(out), train(recipe, tmp_path / "plain"), processes=1)


def sizes(run: Run) -> list[tuple[int, ...]]:
    """The shapes of the moments in the last checkpoint; their order is that of the optimiser's groups."""
    state = torch.load(run.path / "checkpoints/checkpoint-20/optimizer.pt")["state"]
    return sorted(tuple(moments["exp_avg"].shape) for moments in state.values())
