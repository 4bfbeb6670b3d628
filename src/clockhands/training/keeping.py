"""Select the checkpoints of a run that are kept and those that are averaged, and judge its validation losses.

From these follow whether training ends early (``patience``), and a warning at the end if the loss has risen again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clockhands.runs import checkpoints
from clockhands.runs.recipe.sections import Training

SMALL_RISE = 1.02
"""A validation loss that ends at less than this many times its lowest value has not risen: that much is noise."""


def read_losses(state: dict[str, Any]) -> dict[int, float]:
    """Read the validation loss at each step where it was measured, from a Trainer's state; NaN becomes infinity.

    Nothing is lower than NaN, and a list with one cannot be sorted.
    """
    losses = {line["step"]: line["eval_loss"] for line in state.get("log_history", []) if "eval_loss" in line}
    return {step: math.inf if math.isnan(loss) else loss for step, loss in losses.items()}


def rank_best(saved: Sequence[Path], losses: dict[int, float], count: int) -> list[Path]:
    """Return the ``count`` checkpoints of the lowest validation loss, best first; of equal ones the older."""
    steps = {path: checkpoints.get_step(path) for path in saved}
    return sorted(steps, key=lambda path: (losses.get(steps[path], math.inf), steps[path]))[:count]


def _select_planned(saved: Sequence[Path], training: Training, end: int) -> list[Path]:
    """Return the checkpoints that the recipe asks for: every ``save_steps`` steps, and the end; without it all.

    Training resumes from what a stop saved in between, and nothing else uses that: a run that was stopped averages and
    keeps the checkpoints of one that was not.
    """
    steps = {path: checkpoints.get_step(path) for path in saved}
    every = training.save_steps or 1
    return [path for path, step in steps.items() if step % every == 0 or step == end]


def select_averaged(folder: Path, training: Training, losses: dict[int, float], end: int) -> list[Path]:
    """Return the checkpoints whose mean is the model of a run that ended after ``end`` steps."""
    planned = _select_planned(checkpoints.list_checkpoints(folder), training, end)
    return planned[-training.keep :] if training.average == "last" else rank_best(planned, losses, training.keep)


def discard(folder: Path, training: Training, losses: dict[int, float], end: int) -> None:
    """Delete the checkpoints that nothing needs.

    All but the newest, the last or best ``keep`` planned ones, and the one whose weights are exported.
    """
    saved = checkpoints.list_checkpoints(folder)
    planned = _select_planned(saved, training, end)
    kept = rank_best(planned, losses, training.keep) if training.average == "best" else planned[-training.keep :]
    for path in saved[:-1]:
        if path not in (*kept, select_lowest(saved, training, losses)):
            checkpoints.remove_checkpoint(path)


def select_lowest(saved: Sequence[Path], training: Training, losses: dict[int, float]) -> Path | None:
    """Return the checkpoint with the lowest validation loss; None where the recipe exports the last weights."""
    judged = [path for path in saved if checkpoints.get_step(path) in losses and training.export == "lowest"]
    return next(iter(rank_best(judged, losses, 1)), None)


def is_lowest(losses: dict[int, float]) -> bool:
    """Return whether the last validation loss is lower than all before it."""
    *before, last = losses.values()
    return not before or last < min(before)


def is_exhausted(losses: dict[int, float], patience: int | None) -> bool:
    """Return whether the validation loss has not fallen for ``patience`` evaluations; False if ``patience`` is None."""
    values = list(losses.values())
    return bool(patience and values) and len(values) - 1 - values.index(min(values)) >= (patience or 0)


def describe_rise(metrics: Sequence[Mapping[str, Any]], training: Training) -> str | None:
    """Say how far the validation loss rose after its lowest value, and how to save the weights that had that value.

    How to save them is said where the weights of the last step were exported. None where the loss rose by 2 % at most,
    and where the recipe exports the mean of the best checkpoints.
    """
    losses = {line["step"]: line["validation_loss"] for line in metrics if "validation_loss" in line}
    if len(losses) < 2 or training.average == "best":
        return None
    best, last = min(losses, key=lambda step: (losses[step], step)), max(losses)
    if losses[last] <= SMALL_RISE * losses[best]:
        return None
    risen = f"the validation loss was lowest after {best:,} steps ({losses[best]:.4f}) and has risen since"
    if training.export == "lowest":
        return f"{risen}, to {losses[last]:.4f} after {last:,}"
    return f"{risen}. To save the weights with the lowest one, train again with: --set training.export=lowest"
