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
from clockhands.pretrained import PICKLES, load_state, opening, refuse_not_finite
from clockhands.shapes import Tensor
from clockhands.training.sections import Training

PREFIX = "checkpoint-"
STAGING = ".saving"
WEIGHTS = "model.safetensors"
KNOWN = re.compile(r"optimizer\.pt|scheduler\.pt|scaler\.pt|rng_state(_\d+)?\.pth|training_args\.bin")
"""The pickles that a Trainer writes; all but the last are read, as tensors and plain data, and the last by nobody."""
STATE = "trainer_state.json"


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
    except (OSError, SafetensorError, RuntimeError) as fault:
        shutil.rmtree(staging, ignore_errors=True)
        raise CheckpointError(_not_saved(folder, step, fault)) from fault
    wait()
    if writer:
        shutil.rmtree(target, ignore_errors=True)
        (staging / target.name).replace(target)
        shutil.rmtree(staging, ignore_errors=True)


def read_state(checkpoint: Path) -> dict[str, object]:
    """The Trainer's record in a checkpoint. Raises CheckpointError for one that is foreign, damaged or incomplete."""
    try:
        state = json.loads((checkpoint / STATE).read_text("utf8"))
        step = state["global_step"]
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
        weights = load_file(checkpoint / WEIGHTS)
        refuse_not_finite(weights.items(), checkpoint)
        return weights
    except (OSError, SafetensorError) as fault:
        raise CheckpointError(
            f"{checkpoint / WEIGHTS} cannot be read ({fault}); delete that checkpoint to continue from the one before"
        ) from fault


def check(checkpoint: Path) -> None:
    """Raise CheckpointError unless everything that training goes on from is there and can be read.

    Nothing is read as a pickle that could run code, here or by the Trainer afterwards.
    """
    from transformers import TrainerState

    read_state(checkpoint)
    with opening(checkpoint / STATE, "the record"):
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


def discard(folder: Path, training: Training, loss: dict[int, float]) -> None:
    """Delete the checkpoints that are no longer needed: all but the last ``keep`` (or the best and the last one)."""
    there = listed(folder)
    kept = set(there[-1:] if training.average == "best" else there[-training.keep :])
    if training.average == "best":
        kept |= set(best(there, loss, training.keep))
    for path in there:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


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
