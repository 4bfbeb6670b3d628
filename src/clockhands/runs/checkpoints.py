"""The checkpoint files of a run: list, write, check, read and remove them, and average the weights of several."""

from __future__ import annotations

import errno
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from clockhands.errors import CheckpointError
from clockhands.files import apply_umask
from clockhands.pretrained import PICKLES, WEIGHTS, explain_faults, load_state, refuse_not_finite
from clockhands.reading import read_json, refuse_strange_file
from clockhands.shapes import Tensor

PREFIX = "checkpoint-"
"""What the name of a checkpoint begins with; its step follows."""
STAGING, DELETING = ".saving", ".deleting"
"""Names of a checkpoint while it is written and while it is deleted."""
ALLOWED_PICKLES = re.compile(r"optimizer\.pt|scheduler\.pt|scaler\.pt|rng_state(_\d+)?\.pth|training_args\.bin")
"""The pickles that a Trainer writes. ``training_args.bin`` is never loaded, the others as tensors and plain data."""
STATE = "trainer_state.json"
"""The Trainer's own record of a checkpoint."""
LOSS = "loss.json"
"""The losses since the last log line, which the Trainer does not save."""


def list_checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, oldest first, without one that is still being saved under another name."""
    saved = [path for path in folder.glob(f"{PREFIX}*") if path.is_dir() and path.name[len(PREFIX) :].isdecimal()]
    return sorted(saved, key=get_step)


def get_step(checkpoint: Path) -> int:
    """Return the number of updates that were made before a checkpoint was saved."""
    return int(checkpoint.name[len(PREFIX) :])


@contextmanager
def stage_checkpoint(
    folder: Path, step: int, *, writer: bool = True, wait: Callable[[], object] = lambda: None
) -> Iterator[Path]:
    """Yield a staging folder. The caller writes into its subfolder ``checkpoint-<step>``, which on exit is moved out.

    All processes write into the staging folder. Only the process with ``writer`` makes it, and moves the
    checkpoint into ``folder`` in the end. ``wait`` is a barrier for all processes. Raises CheckpointError if the
    checkpoint cannot be written or moved; earlier checkpoints stay.
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
            remove_checkpoint(target)
            (staging / target.name).replace(target)
            shutil.rmtree(staging, ignore_errors=True)
    except (OSError, SafetensorError, RuntimeError) as fault:
        shutil.rmtree(staging, ignore_errors=True)
        saved = list_checkpoints(folder)
        kept = f"{saved[-1].name} is intact" if saved else "none was saved before"
        # safetensors quotes the system's message; PyTorch says only that its writer failed.
        marks = ("No space left", "quota exceeded", "PytorchStreamWriter failed writing")
        full = getattr(fault, "errno", 0) in (errno.ENOSPC, errno.EDQUOT) or any(mark in str(fault) for mark in marks)
        raise CheckpointError(
            f"the checkpoint of step {step} cannot be saved in {folder}: {_describe(fault)}; {kept}. "
            f"{'Make room' if full else 'Mend that'}, then: clockhands train --resume {folder.parent}"
        ) from fault


def remove_checkpoint(checkpoint: Path) -> None:
    """Delete a checkpoint. If the process is killed meanwhile, what is left does not have the name of a checkpoint."""
    renamed = checkpoint.with_name(DELETING)
    shutil.rmtree(renamed, ignore_errors=True)
    if checkpoint.is_dir():
        checkpoint.replace(renamed)
        shutil.rmtree(renamed, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what is left of a checkpoint that a killed process was saving or deleting."""
    for name in (STAGING, DELETING):
        shutil.rmtree(folder / name, ignore_errors=True)


def read_weights(checkpoint: Path) -> dict[str, Tensor]:
    """Read the weights of a checkpoint. Raises CheckpointError if they are missing or damaged."""
    try:
        if (checkpoint / WEIGHTS).exists():
            refuse_strange_file(checkpoint / WEIGHTS)
        weights = load_file(checkpoint / WEIGHTS)
        refuse_not_finite(weights.items(), checkpoint)
        return weights
    except (OSError, SafetensorError) as fault:
        raise CheckpointError(
            f"{checkpoint / WEIGHTS} cannot be read ({fault}); delete that checkpoint to continue from the one before"
        ) from fault


def read_loss(checkpoint: Path) -> tuple[list[float], int]:
    """Read the sum of the losses since the last log line, one of each process, and the step of that line.

    Raises CheckpointError for a damaged checkpoint.
    """
    saved = read_json(checkpoint / LOSS)
    try:
        sums, step = [float(value) for value in saved["sums"]], int(saved["logged"])
    except (ValueError, KeyError, TypeError, OverflowError) as fault:
        raise CheckpointError(f"{checkpoint} is damaged: {LOSS} cannot be read ({fault})") from fault
    if not sums:
        raise CheckpointError(f"{checkpoint} is damaged: {LOSS} holds no loss")
    return sums, step


def check_resumable(checkpoint: Path) -> None:
    """Raise CheckpointError unless everything that training resumes from is there and can be read.

    Nothing is unpickled that could run code, neither here nor by the Trainer afterwards.
    """
    from transformers import TrainerState

    if not (checkpoint / STATE).exists():
        raise CheckpointError(f"{checkpoint} is not a checkpoint of a training run ({STATE} not found)")
    state = read_json(checkpoint / STATE)
    if state.get("global_step") != get_step(checkpoint):
        raise CheckpointError(f"{checkpoint} is damaged: its state is of step {state.get('global_step')!r}")
    read_loss(checkpoint)
    with explain_faults(checkpoint / STATE, "the record"):
        TrainerState.load_from_json(str(checkpoint / STATE))
    read_weights(checkpoint)
    for path in sorted(checkpoint.iterdir()):
        if path.name.endswith(PICKLES) and not ALLOWED_PICKLES.fullmatch(path.name):
            raise CheckpointError(
                f"{path} is not a file of a checkpoint; it is a pickle, which can run any code when it is read: delete "
                "it"
            )
    for path in (checkpoint / "optimizer.pt", checkpoint / "scheduler.pt", *sorted(checkpoint.glob("rng_state*.pth"))):
        try:
            state = load_state(path)
            if path.suffix == ".pth":  # loaded into new generators
                random.Random().setstate(state["python"])
                np.random.RandomState().set_state(state["numpy"])
                torch.Generator().set_state(state["cpu"])
        except Exception as fault:  # what is in a file of somebody else's decides what torch raises
            raise CheckpointError(
                f"{path} cannot be read ({_describe(fault)}); delete that checkpoint to continue from the one before"
            ) from fault


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints, summed in float64; integer tensors are those of the last one.

    Raises CheckpointError if the checkpoints differ in the names, shapes or types of their weights.
    """
    total: dict[str, Tensor] = {}
    expected: dict[str, tuple[torch.Size, torch.dtype]] = {}
    for path in checkpoints:
        weights = read_weights(path)
        types = {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()}
        expected = expected or types  # those of the first checkpoint
        differing = [name for name in {**expected, **types} if expected.get(name) != types.get(name)]
        if differing:
            raise CheckpointError(
                f"{path} holds other weights than {checkpoints[0]} ({differing[0]}); they cannot be averaged"
            )
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                tensor = total[name] + tensor.double() if name in total else tensor.double()
            total[name] = tensor
    return {
        name: (tensor / len(checkpoints)).to(expected[name][1]) if tensor.is_floating_point() else tensor
        for name, tensor in total.items()
    }


def _describe(fault: Exception) -> str:
    """Return the first sentence of what a library says, or the type of the fault where it says nothing.

    In the next one torch advises to read a file in a way that runs the code in it.
    """
    said = next(iter(str(fault).splitlines()), type(fault).__name__)
    return getattr(fault, "strerror", None) or said.split(". ")[0]
