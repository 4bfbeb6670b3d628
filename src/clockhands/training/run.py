"""A run folder: what lies in it, making one, opening one.

::

    recipe.toml       the resolved recipe
    run.json          versions, device, parameters, a fingerprint of the data, whether it is finished
    metrics.jsonl     loss, validation loss, learning rate, speed, by step
    curves.svg        the same, drawn
    config.json, generation_config.json, model.safetensors, tokenizer files: a Hugging Face model
    checkpoints/      what training goes on from
    begin.safetensors what training.begin_from gave, until the run is finished
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from clockhands.data import Tokenizers
from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.files import write_text
from clockhands.training import checkpoints
from clockhands.training.recipe import Recipe, combine, read_tables

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECIPE, RECORD, CONFIG, CURVES = "recipe.toml", "run.json", "config.json", "curves.svg"


@dataclass(frozen=True)
class Run:
    """A training run on disk, finished or not."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run in a folder. Raises CheckpointError if the folder is none."""
        path = Path(path)
        if not (path / RECIPE).is_file():
            found = f"a folder without {RECIPE}" if path.is_dir() else "not there" if not path.exists() else "a file"
            raise CheckpointError(f"{path} is no training run: it is {found}")
        return cls(path)

    @cached_property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        tables = read_tables(self.path / RECIPE)
        # Runs from before ``auto`` left out a rate that nobody had given, which was another one.
        before = {"learning_rate": "none", "warmup_steps": 0}
        tables["training"] = {**before, **tables.get("training", {})}
        return combine(tables, {}, source=str(self.path / RECIPE))

    @property
    def record(self) -> dict[str, Any]:
        """What ``run.json`` says; empty before training has begun."""
        try:
            return dict(json.loads((self.path / RECORD).read_text("utf8")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as fault:
            raise CheckpointError(f"{self.path / RECORD} cannot be read: {fault}") from fault

    @property
    def finished(self) -> bool:
        """Whether it was trained to its end."""
        return bool(self.record.get("finished"))

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        from clockhands.training.watch import METRICS, read_metrics

        return read_metrics(self.path / METRICS)

    def checkpoints(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return checkpoints.listed(self.path / "checkpoints")

    def tokenizers(self) -> Tokenizers:
        """What reads its source and writes its target."""
        return Tokenizers.load(self.path)

    def model(self) -> PreTrainedModel:
        """The trained model, or where training has not ended that of the last checkpoint; in evaluation mode.

        Raises CheckpointError if there is none yet.
        """
        from clockhands.generation.opened import open_model

        folder = self.path if (self.path / CONFIG).is_file() else next(iter(self.checkpoints()[::-1]), None)
        if folder is None:
            raise CheckpointError(
                f"{self.path} holds no model yet; continue with: clockhands train --resume {self.path}"
            )
        return open_model(folder)


def refuse(path: Path, *, overwrite: bool = False) -> None:
    """Raise UsageError if something is in the way of a new run: what is no run, or a run unless ``overwrite``."""
    # os.path, unlike pathlib, takes a folder that may not be entered for one that is not there; `claim` then names it.
    if not os.path.exists(path) or (path.is_dir() and not any(path.iterdir())):  # noqa: PTH110
        return
    if not (path / RECIPE).is_file():
        raise UsageError(f"{path} exists and is no training run; it is left alone, choose another folder")
    if not overwrite:
        raise UsageError(f"{path} already holds a run; continue it with --resume {path}, or replace it: --overwrite")


def claim(path: Path, *, overwrite: bool = False) -> None:
    """Make the folder of a new run, in place of a former one if ``overwrite``. Raises as ``refuse``, and DataError
    without the right to write."""
    refuse(path, overwrite=overwrite)
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "checkpoints").mkdir(exist_ok=True)
    except OSError as fault:
        raise DataError(f"cannot make the run folder {path}: {fault.strerror or fault}") from fault


def note(run: Path, **facts: Any) -> None:
    """Add facts to ``run.json``."""
    path = run / RECORD
    known = json.loads(path.read_text("utf8")) if path.is_file() else {}
    write_text(path, json.dumps({**known, **facts}, indent=2) + "\n")


def export(run: Path, model: PreTrainedModel, weights: Mapping[str, Any] | None = None) -> None:
    """Save the model into the run folder, ``config.json`` last: a folder that has one has everything.

    Raises CheckpointError if it cannot be written; what was there before stays.
    """
    staging = run / ".exporting"
    try:
        model.save_pretrained(staging, state_dict=None if weights is None else dict(weights))
        for file in sorted(staging.iterdir(), key=lambda file: file.name == CONFIG):
            file.replace(run / file.name)
    except (OSError, RuntimeError, SafetensorError) as fault:
        raise CheckpointError(f"the model cannot be saved in {run}: {fault}; its checkpoints are intact") from fault
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def rank() -> int:
    """The number of this process among those that torchrun or accelerate started."""
    return int(os.environ.get("RANK", "0"))
