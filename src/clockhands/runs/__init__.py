"""Runs: folders with a trained model, their checkpoints, and the functions that open models.

::

    from clockhands.runs import Run, open_run

    run = open_run("runs/tour")
    run.model, run.tokenizers, run.recipe, run.metrics
"""

from __future__ import annotations

from clockhands.runs.foreign import load_foreign_model, read_checked_config, refuse_unknown_positions
from clockhands.runs.language_model import LanguageModel, find_trained_length, is_run
from clockhands.runs.language_model_opening import open_language_model
from clockhands.runs.opening import open_configuration, open_model, open_tokenizers, read_clockhands_config
from clockhands.runs.run import Run, open_run

__all__ = [
    "LanguageModel",
    "Run",
    "find_trained_length",
    "is_run",
    "load_foreign_model",
    "open_configuration",
    "open_language_model",
    "open_model",
    "open_run",
    "open_tokenizers",
    "read_checked_config",
    "read_clockhands_config",
    "refuse_unknown_positions",
]
