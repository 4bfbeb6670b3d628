"""Checkpoints of a run: which there are, whether one is whole, which are kept, and the mean of several."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from clockhands.errors import CheckpointError
from clockhands.files import apply_umask, check_readable
from clockhands.pretrained import PICKLES, explain_faults, load_state, refuse_not_finite
from clockhands.shapes import Tensor
from clockhands.training.sections import Training

PREFIX = "checkpoint-"
STAGING, LEAVING = ".saving", ".deleting"
WEIGHTS = "model.safetensors"
KNOWN = re.compile(r"optimizer\.pt|scheduler\.pt|scaler\.pt|rng_state(_\d+)?\.pth|training_args\.bin")
"""The pickles that a Trainer writes; all but the last are read, as tensors and plain data, and the last by nobody."""
STATE = "trainer_state.json"
LOSS = "loss.json"


def listed(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first. What was not saved to the end has another name and is not there."""
    found = [path for path in folder.glob(f"{PREFIX}*") if path.is_dir() and path.name[len(PREFIX) :].isdecimal()]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """The number of updates made before it was saved."""
    return int(checkpoint.name[len(PREFIX) :])


@contextmanager
def staged(
    folder: Path, step: int, *, writer: bool = True, wait: Callable[[], object] = lambda: None
) -> Iterator[Path]:
    """A temporary folder to write a checkpoint under; what it holds takes its place only when all is written.

    Of several processes all write there and one is the ``writer`` that makes and moves the folder; ``wait`` lets each
    wait for all. Raises CheckpointError if the disk or the rights do not allow it; earlier checkpoints stay.
    """
    staging = folder / STAGING
    target = folder / f"{PREFIX}{step}"
    try:
        if writer:
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
        wait()
        yield staging
        wait()
        if writer:
            apply_umask(staging)
    except (OSError, SafetensorError, RuntimeError) as fault:
        shutil.rmtree(staging, ignore_errors=True)
        raise CheckpointError(_not_saved(folder, step, fault)) from fault
    if writer:
        remove(target)
        (staging / target.name).replace(target)
        shutil.rmtree(staging, ignore_errors=True)


def remove(checkpoint: Path) -> None:
    """Delete a checkpoint; killed in the middle, it is gone all the same: no half of it has its name."""
    leaving = checkpoint.with_name(LEAVING)
    shutil.rmtree(leaving, ignore_errors=True)
    if checkpoint.is_dir():
        checkpoint.replace(leaving)
        shutil.rmtree(leaving, ignore_errors=True)


def tidy(folder: Path) -> None:
    """Remove what a killed process left of a checkpoint that it was saving or deleting."""
    for name in (STAGING, LEAVING):
        shutil.rmtree(folder / name, ignore_errors=True)


def read_state(checkpoint: Path) -> dict[str, object]:
    """The Trainer's record in a checkpoint. Raises CheckpointError for one that is foreign, damaged or incomplete."""
    try:
        state = json.loads((checkpoint / STATE).read_text("utf8"))
        step = state["global_step"]
    except PermissionError as fault:
        raise CheckpointError(f"{checkpoint / STATE} cannot be read: {fault.strerror}") from fault
    except FileNotFoundError as fault:
        raise CheckpointError(f"{checkpoint} is no checkpoint of a training run: {STATE} is missing") from fault
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as fault:
        raise CheckpointError(f"{checkpoint} is damaged: {STATE} cannot be read ({fault})") from fault
    if step != step_of(checkpoint):
        raise CheckpointError(f"{checkpoint} is damaged: its state is of step {step}")
    return dict(state)


def read_weights(checkpoint: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint. Raises CheckpointError if they are missing or damaged."""
    try:
        check_readable(checkpoint / WEIGHTS)
        weights = load_file(checkpoint / WEIGHTS)
        refuse_not_finite(weights.items(), checkpoint)
        return weights
    except PermissionError as fault:
        raise CheckpointError(f"{checkpoint / WEIGHTS} cannot be read: {fault.strerror}") from fault
    except (OSError, SafetensorError) as fault:
        raise CheckpointError(
            f"{checkpoint / WEIGHTS} cannot be read ({fault}); delete that checkpoint to continue from the one before"
        ) from fault


def read_loss(checkpoint: Path) -> tuple[list[float], int] | None:
    """The sum of the losses since the last log line of every process, and the step of that line.

    None for a checkpoint of an earlier version, which was always preceded by a log line. Raises CheckpointError for a
    damaged one.
    """
    try:
        saved = json.loads((checkpoint / LOSS).read_text("utf8"))
        sums, step = [float(value) for value in saved["sums"]], int(saved["logged"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as fault:
        raise CheckpointError(f"{checkpoint} is damaged: {LOSS} cannot be read ({fault})") from fault
    if not sums:
        raise CheckpointError(f"{checkpoint} is damaged: {LOSS} holds no loss")
    return sums, step


def check(checkpoint: Path) -> None:
    """Raise CheckpointError unless everything that training goes on from is there and can be read.

    Nothing is read as a pickle that could run code, here or by the Trainer afterwards.
    """
    from transformers import TrainerState

    read_state(checkpoint)
    read_loss(checkpoint)
    with explain_faults(checkpoint / STATE, "the record"):
        TrainerState.load_from_json(str(checkpoint / STATE))
    read_weights(checkpoint)
    for path in sorted(checkpoint.iterdir()):
        if path.name.endswith(PICKLES) and not KNOWN.fullmatch(path.name):
            raise CheckpointError(
                f"{path} is no file of a checkpoint; it is a pickle, which can run any code when it is read: delete it"
            )
    for path in (checkpoint / "optimizer.pt", checkpoint / "scheduler.pt", *sorted(checkpoint.glob("rng_state*.pth"))):
        try:
            state = load_state(path)
            if path.suffix == ".pth":
                _try_random(state)
        except Exception as fault:  # what is in a file of somebody else's decides what torch raises
            raise CheckpointError(
                f"{path} cannot be read ({_reason(fault)}); delete that checkpoint to continue from the one before"
            ) from fault


def _try_random(state: dict[str, Any]) -> None:
    """Set generators that nobody uses to the random numbers of a checkpoint; raises anything if they are none."""
    random.Random().setstate(state["python"])
    np.random.RandomState().set_state(state["numpy"])
    torch.Generator().set_state(state["cpu"])


def losses(state: dict[str, object]) -> dict[int, float]:
    """The validation loss at each step where it was measured, from a Trainer's record."""
    history = state.get("log_history", [])
    assert isinstance(history, list)
    return {line["step"]: line["eval_loss"] for line in history if "eval_loss" in line}


def best(checkpoints: Sequence[Path], loss: dict[int, float], count: int) -> list[Path]:
    """The ``count`` checkpoints of the lowest validation loss, best first; of equals the older."""
    return sorted(checkpoints, key=lambda path: (loss.get(step_of(path), math.inf), step_of(path)))[:count]


def planned(checkpoints: Sequence[Path], training: Training, end: int) -> list[Path]:
    """Those that the recipe asks for: of every ``save_steps`` steps, and of the end. Without ``save_steps`` all.

    What a stop saved in between is gone on from, and nothing else: a run that was stopped averages and keeps the
    checkpoints of one that was not.
    """
    every = training.save_steps
    return [path for path in checkpoints if not every or step_of(path) % every == 0 or step_of(path) == end]


def exhausted(loss: dict[int, float], patience: int | None) -> bool:
    """Whether the validation loss has not fallen for ``patience`` evaluations."""
    values = list(loss.values())
    return bool(patience and values) and len(values) - 1 - values.index(min(values)) >= (patience or 0)


def averaged(folder: Path, training: Training, loss: dict[int, float], end: int) -> list[Path]:
    """The checkpoints whose mean is the model of a run that ended after ``end`` steps."""
    found = planned(listed(folder), training, end)
    return found[-training.keep :] if training.average == "last" else best(found, loss, training.keep)


def discard(folder: Path, training: Training, loss: dict[int, float], end: int) -> None:
    """Delete what is not needed any more: all but the newest, and the last or best ``keep`` that are planned."""
    there = listed(folder)
    wanted = planned(there, training, end)
    kept = best(wanted, loss, training.keep) if training.average == "best" else wanted[-training.keep :]
    for path in there[:-1]:
        if path not in kept:
            remove(path)


def mean(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, summed in float64; what is not a float is the last one's."""
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        weights = read_weights(path)
        if total and total.keys() != weights.keys():
            raise CheckpointError(f"{path} holds other weights than {checkpoints[0]}; they cannot be averaged")
        for name, tensor in weights.items():
            floating = tensor.is_floating_point()
            total[name] = total[name] + tensor.double() if name in total and floating else _start(tensor)
    kinds = {name: tensor.dtype for name, tensor in weights.items()}
    return {
        name: (tensor / len(checkpoints)).to(kinds[name]) if kinds[name].is_floating_point else tensor
        for name, tensor in total.items()
    }


def _start(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _reason(fault: Exception) -> str:
    """One line of what a library says, or what kind of fault it is where it says nothing."""
    return getattr(fault, "strerror", None) or next(iter(str(fault).splitlines()), type(fault).__name__)


def _not_saved(folder: Path, step: int, fault: Exception) -> str:
    there = listed(folder)
    kept = f"{there[-1].name} is intact" if there else "none was saved before"
    return (
        f"the checkpoint of step {step} cannot be saved in {folder}: {_reason(fault)}; {kept}. "
        f"Make room, then: clockhands train --resume {folder.parent}"
    )
