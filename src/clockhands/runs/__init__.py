"""Runs: folders with a trained model, their checkpoints, and the functions that open them.

::

    from clockhands.runs import Run, open_run

    run = open_run("runs/tour")
    run.model, run.tokenizers, run.recipe, run.metrics
"""

from __future__ import annotations

from clockhands.runs.opening import open_configuration, open_model, open_tokenizers, read_clockhands_config
from clockhands.runs.run import Run, open_run

__all__ = ["Run", "open_configuration", "open_model", "open_run", "open_tokenizers", "read_clockhands_config"]
