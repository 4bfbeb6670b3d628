"""Checks before a training: of the recipe against the text, of the processes, and of a run that is resumed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from clockhands.devices import open_device
from clockhands.errors import DataError, UsageError
from clockhands.runs import Run, checkpoints
from clockhands.runs.recipe import Recipe
from clockhands.runs.recipe.sections import Training
from clockhands.training.architecture import configure
from clockhands.training.defaults import count_updates
from clockhands.training.memory_check import check_batches, check_recipe
from clockhands.training.training_data import TrainingData

__all__ = ["check_before_reading", "check_material", "check_resumed"]


def check_before_reading(recipe: Recipe) -> None:
    """Raise UsageError for what is wrong before any text is read: loggers, device, processes, memory."""
    _check_loggers(recipe.training.report_to)
    _check_launch(recipe.training)
    check_recipe(recipe)


def check_material(recipe: Recipe, material: TrainingData) -> None:
    """Raise UsageError or ConfigError for what a recipe asks of its text and cannot have."""
    configure(recipe, material.tokenizers)
    check_batches(recipe, material)
    material.batches(recipe)
    _check_lengths(recipe, material)
    training = recipe.training
    needed = {
        "eval_steps": training.evaluation_interval,
        "patience": training.patience,
        "export": training.export == "lowest",
    }
    if material.validation is None and (names := [name for name, is_needed in needed.items() if is_needed]):
        raise UsageError(f"training.{names[0]} is given, but corpus {recipe.corpus!r} has no validation split")


def check_resumed(run: Run, recipe: Recipe, material: TrainingData, last: Path | None) -> None:
    """Raise DataError if the text has changed, UsageError if the run has made more steps than the recipe has now."""
    if run.record.get("data", material.fingerprint) != material.fingerprint:
        raise DataError(f"the text of {run.path} is not what it was when training began; it cannot go on exactly")
    made, total = 0 if last is None else checkpoints.get_step(last), count_updates(recipe, material)
    if made > total:
        raise UsageError(
            f"{run.path} has made {made} steps already, and {total} are asked for; give training.max_steps = {made} "
            f"to end it there, or more to go on"
        )


def _check_lengths(recipe: Recipe, material: TrainingData) -> None:
    """Raise UsageError if an example is longer than a position table that refuses positions beyond its end."""
    splits = [split for split in (material.train, material.validation) if split is not None]
    longest = [max(lengths) for lengths in zip(*(split.longest for split in splits), strict=True)]
    # Pairs have two lengths, source and target; windows have one, whichever side reads them.
    sides = {"encoder": longest[0], "decoder": longest[-1]}
    for side in (side for side in recipe.model.sides if side in sides):
        position = recipe.model.get_position_config(side)
        declares = recipe.model.summarise_schemes(side).declares
        limit = declares.max_length
        if limit is not None and declares.beyond == "raise" and position.transform is None and sides[side] > limit:
            raise UsageError(
                f"the {side}'s {position.name} has {limit} positions and the longest example {sides[side]} tokens; "
                f"raise position.max_length, or bound the examples (batches.max_length, batches.longer = 'drop')"
            )


def _check_loggers(loggers: tuple[str, ...]) -> None:
    """Raise UsageError if a logger of the recipe is not installed."""
    missing = [name for name in loggers if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training.report_to names {' and '.join(missing)}, not installed here: pip install {' '.join(missing)}"
        )


def _check_launch(training: Training) -> None:
    """Raise UsageError if the processes that were started, or this machine, are not those that the recipe asks for."""
    if training.device != "auto":
        open_device(training.device, "training.device")
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        raise UsageError(
            "accelerate's own FSDP (--use_fsdp) is not used here: leave it out, and set training.sharded = true"
        )
    if training.sharded and int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise UsageError(
            "training.sharded divides the model among processes, and there is one; start several: "
            "torchrun --nproc-per-node 2 -m clockhands train ..."
        )
