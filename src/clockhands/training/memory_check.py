"""Estimate whether a recipe fits the memory, before text is read or a folder is made."""

from __future__ import annotations

import torch

from clockhands.data import WindowDataset
from clockhands.devices import check_threads, require_memory
from clockhands.errors import UsageError
from clockhands.model.config import TransformerConfig
from clockhands.model.size import count_bytes, find_memory_fault
from clockhands.runs.recipe import Recipe
from clockhands.training.architecture import configure
from clockhands.training.training_data import EVALUATED, TrainingData

__all__ = ["check_batches", "check_recipe"]


def check_recipe(recipe: Recipe) -> None:
    """Raise UsageError if the model alone does not fit the memory, or for a number of threads that only slows it down.

    The vocabulary is assumed to have the usual size, because there is no tokenizer yet.
    """
    if recipe.training.threads is not None:
        check_threads(recipe.training.threads, "training.threads")
    # A model that is divided among processes is not judged: how much each holds is known only later.
    fault = (
        None
        if recipe.training.sharded
        else find_memory_fault(recipe.model, training=True, device=find_training_device(recipe))
    )
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
    order = recipe.batches.per_epoch * (recipe.batches.size or 1) * 8
    if isinstance(material.train, WindowDataset):
        what = f"batches.per_epoch x batches.size windows are {order // 8:,}, and their order alone needs"
        require_memory(order, what, "lower them", device)
    tokens = _count_largest_batch(recipe, material.train)
    needed = count_bytes(core, training=True) + tokens * _count_bytes_a_token(core)
    if material.validation is not None:
        evaluated = EVALUATED * _count_largest_batch(recipe, material.validation)
        needed = max(needed, count_bytes(core) + evaluated * 4 * core.d_model)
    advice = "lower batches.size or batches.tokens, bound the examples with batches.max_length or batches.window, and "
    require_memory(
        needed, f"a batch of {tokens:,} tokens needs, with this model,", f"{advice}raise training.accumulate", device
    )


def _count_largest_batch(recipe: Recipe, data: TrainingData | object) -> int:
    """Count the tokens of the largest batch, pads included, on both sides: examples times the longest of each."""
    batching = recipe.batches
    if isinstance(data, WindowDataset):
        return max(batching.tokens or 0, (batching.size or 1) * data.length)
    longest, count = data.longest, len(data)  # type: ignore[attr-defined,arg-type]
    size = min(batching.size or count, count)
    return min(batching.tokens * 2 if batching.tokens else size * sum(longest), size * sum(longest))


def _count_bytes_a_token(core: TransformerConfig) -> int:
    """Return the least bytes that the backward pass keeps of one token: its states in every layer, in float32."""
    layers = max(core.count_layers(side) for side in core.stack_sides)
    return 4 * layers * (6 * core.d_model + core.d_ff)


def find_training_device(recipe: Recipe) -> torch.device:
    """Return the device that the Trainer of transformers will use for a recipe."""
    usable = recipe.training.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if usable else "cpu")
