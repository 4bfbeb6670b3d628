"""Checks before a training: of the recipe alone, and of the recipe against the text."""

from __future__ import annotations

import importlib.util
import os

import torch

from clockhands.data import PairDataset, WindowDataset
from clockhands.devices import check_threads, open_device, require_memory
from clockhands.errors import UsageError
from clockhands.model.size import count_bytes, find_memory_fault
from clockhands.runs.recipe import Recipe
from clockhands.training.model import configure
from clockhands.training.training_data import EVALUATED, TrainingData


def find_training_device(recipe: Recipe) -> torch.device:
    """Return the device that the Trainer of transformers will use for a recipe."""
    usable = recipe.training.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if usable else "cpu")


def check_recipe(recipe: Recipe) -> None:
    """Raise UsageError if the model alone does not fit the memory, or for a number of threads that only slows it down.

    The vocabulary is assumed to have the usual size, because there is no tokenizer yet.
    """
    if recipe.training.threads is not None:
        check_threads(recipe.training.threads, "training.threads")
    # A model that is divided among processes is not judged: how much each holds is known only later.
    if not recipe.training.sharded:
        fault = find_memory_fault(recipe.model, training=True, device=find_training_device(recipe))
        if fault is not None:
            raise UsageError(fault)


def check_batches(recipe: Recipe, material: TrainingData) -> None:
    """Raise UsageError if the model with its real vocabulary, or its largest batch, does not fit the memory."""
    if recipe.training.sharded:
        return
    core, device = configure(recipe, material.tokenizers).transformer_config, find_training_device(recipe)
    fault = find_memory_fault(core, training=True, device=device)
    if fault is not None:
        raise UsageError(fault)
    windows = recipe.batches.per_epoch * (recipe.batches.size or 1)
    if isinstance(material.train, WindowDataset):
        what = f"batches.per_epoch x batches.size windows are {windows:,}, and their order alone needs"
        require_memory(8 * windows, what, "lower them", device)
    tokens = _count_largest_batch(recipe, material.train)
    # The least that the backward pass keeps of a token: its states in every layer, in float32.
    layers = max(core.count_layers(side) for side in core.stack_sides)
    needed = count_bytes(core, training=True) + tokens * 4 * layers * (6 * core.d_model + core.d_ff)
    if material.validation is not None:
        evaluated = EVALUATED * _count_largest_batch(recipe, material.validation)
        needed = max(needed, count_bytes(core) + evaluated * 4 * core.d_model)
    advice = "lower batches.size or batches.tokens, bound the examples with batches.max_length or batches.window, and "
    require_memory(
        needed, f"a batch of {tokens:,} tokens needs, with this model,", f"{advice}raise training.accumulate", device
    )


def _count_largest_batch(recipe: Recipe, data: PairDataset | WindowDataset) -> int:
    """Count the tokens of the largest batch, pads included, on both sides: examples times the longest of each."""
    tokens, size = recipe.batches.tokens, recipe.batches.size
    if isinstance(data, WindowDataset):
        return max(tokens or 0, (size or 1) * data.length)
    most = min(size or len(data), len(data)) * sum(data.longest)
    return min(2 * tokens, most) if tokens else most


def check_before_reading(recipe: Recipe) -> None:
    """Raise UsageError for what is wrong before any text is read: loggers, device, processes, memory."""
    training = recipe.training
    missing = [name for name in training.report_to if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training.report_to names {' and '.join(missing)}, not installed here: pip install {' '.join(missing)}"
        )
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
    check_recipe(recipe)


def check_material(recipe: Recipe, material: TrainingData) -> None:
    """Raise UsageError or ConfigError for what a recipe asks of its text and cannot have."""
    configure(recipe, material.tokenizers)
    check_batches(recipe, material)
    material.batches(recipe)
    splits = [split for split in (material.train, material.validation) if split is not None]
    # Pairs have two lengths, source and target; windows have one, whichever side reads them.
    longest = {"encoder": max(split.longest[0] for split in splits), "decoder": max(s.longest[-1] for s in splits)}
    for side in recipe.model.stack_sides:
        position = recipe.model.get_position_config(side)
        declares = recipe.model.summarise_schemes(side).declares
        limit, length = declares.max_length, longest[side]
        if limit is not None and declares.beyond == "raise" and position.transform is None and length > limit:
            raise UsageError(
                f"the {side}'s {position.name} has {limit} positions and the longest example {length} tokens; "
                "raise position.max_length, or bound the examples (batches.max_length, batches.longer = 'drop')"
            )
    training = recipe.training
    needed = {"eval_steps": training.evaluation_interval, "patience": training.patience,
              "export": training.export == "lowest"}  # fmt: skip
    if material.validation is None and any(needed.values()):
        name = next(name for name, is_needed in needed.items() if is_needed)
        raise UsageError(f"training.{name} is given, but corpus {recipe.corpus!r} has no validation split")
