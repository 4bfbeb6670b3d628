"""Training on the Trainer of transformers: a recipe in, a run folder out.

::

    from clockhands.training import train, resume
    run = train("recipes/numbers.toml", "runs/mine", {"position.scheme": "rope", "training.max_steps": 400})
    model, tokenizers = run.model, run.tokenizers

Runs that differ in a few fields share what they read::

    recipe = load_recipe("recipes/numbers.toml")
    material = prepare(recipe)
    recipes = {name: vary_recipe(recipe, {"position.scheme": name}) for name in schemes}
    runs = [train(recipes[name], f"runs/{name}", material=material) for name in schemes]

What stopped goes on with ``resume("runs/mine")``, to the same weights bit for bit as if it had not stopped.
``Recipe``, ``load_recipe`` and ``vary_recipe`` do not import transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clockhands.runs.recipe import Recipe, load_recipe, vary_recipe

if TYPE_CHECKING:
    from clockhands.training.callbacks import Diverged, TrainingStopped
    from clockhands.training.session import resume, train
    from clockhands.training.training_data import TrainingData, prepare

_HOME = {
    "TrainingData": "training_data",
    "prepare": "training_data",
    "train": "session",
    "resume": "session",
    "Diverged": "callbacks",
    "TrainingStopped": "callbacks",
}

__all__ = [
    "Diverged",
    "Recipe",
    "TrainingData",
    "TrainingStopped",
    "load_recipe",
    "prepare",
    "resume",
    "train",
    "vary_recipe",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'clockhands.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"clockhands.training.{_HOME[name]}"), name)
