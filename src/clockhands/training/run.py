"""A run folder: what lies in it, making one, opening one.

::

    recipe.toml       the resolved recipe
    run.json          versions, device, parameters, a fingerprint of the data, whether it is finished
    metrics.jsonl     loss, validation loss, learning rate, speed, by step
    curves.svg        the same, drawn
    config.json, generation_config.json, model.safetensors, tokenizer files: a Hugging Face model
    checkpoints/      what training goes on from
    begin.safetensors what training.begin_from gave, until the run is finished
    .starting/        the first files while the run is being made: recipe.toml takes its place last of all
    .lock             who writes here at the moment
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from clockhands.data import Tokenizers
from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.files import UNFINISHED, apply_umask, remove_unfinished, write_text
from clockhands.locking import LOCK
from clockhands.pretrained import read_json
from clockhands.training import checkpoints
from clockhands.training.recipe import Recipe, combine, read_tables

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECIPE, RECORD, METRICS, CONFIG, CURVES = "recipe.toml", "run.json", "metrics.jsonl", "config.json", "curves.svg"
BEGIN = "begin.safetensors"
STARTING, EXPORTING = ".starting", ".exporting"
OWN = (
    *(RECIPE, RECORD, METRICS, CONFIG, CURVES, BEGIN, STARTING, EXPORTING, "checkpoints", "generation_config.json"),
    *("model.safetensors", "model-*.safetensors", "model.safetensors.index.json", f".*{UNFINISHED}"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("target", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    *("report.html", "findings.json", "figures", "tables", "variants"),
)
"""Names of what a run writes, the tokenizers of transformers and the tour's page included. Nothing else is deleted."""


@dataclass(frozen=True)
class Run:
    """A training run on disk, finished or not."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run in a folder. Raises CheckpointError if the folder is none."""
        path = Path(path)
        if not (path / RECIPE).is_file():
            if (path / STARTING).is_dir():
                raise CheckpointError(
                    f"{path} holds a run that was stopped before it began; give the command that started it again"
                )
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
        path = self.path / RECORD
        return read_json(path) if path.exists() else {}

    @property
    def finished(self) -> bool:
        """Whether it was trained to its end."""
        return bool(self.record.get("finished"))

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        from clockhands.training.watch import read_metrics

        return read_metrics(self.path / METRICS)

    def checkpoints(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return checkpoints.listed(self.path / "checkpoints")

    def tokenizers(self) -> Tokenizers:
        """What reads its source and writes its target. Raises CheckpointError if its model was trained with others."""
        from clockhands.generation.opened import open_configuration, open_tokenizers

        folders = (self.path, *self.checkpoints()[::-1])
        saved = next((folder for folder in folders if (folder / CONFIG).is_file()), None)
        return Tokenizers.load(self.path) if saved is None else open_tokenizers(self.path, open_configuration(saved))

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
    """Raise UsageError if something is in the way of a new run: what is no run, or a run unless ``overwrite``.

    A run whose start was killed is not in the way.
    """
    # os.path, unlike pathlib, takes a folder that may not be entered for one that is not there; `hold` then names it.
    if not os.path.exists(path) or (path.is_dir() and set(os.listdir(path)) <= {LOCK}):  # noqa: PTH110, PTH208
        return
    if not (path / RECIPE).is_file():
        if not (path / STARTING).is_dir():
            raise UsageError(f"{path} exists and is no training run; it is left alone, choose another folder")
    elif not overwrite:
        raise UsageError(f"{path} already holds a run; continue it with --resume {path}, or replace it: --overwrite")


@contextmanager
def starting(path: Path) -> Iterator[Path]:
    """The folder for the first files of a new run, ``recipe.toml`` among them; they take their places at the end.

    Only then a former run gives way, and of its folder only what a run writes. Killed at any moment, there is the
    former run, or a folder without ``recipe.toml`` that the same command takes over, or the new run.
    Raises DataError without the right to write.
    """
    staging = path / STARTING
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
    except OSError as fault:
        raise DataError(f"cannot make the run folder {path}: {fault.strerror or fault}") from fault
    try:
        yield staging
        apply_umask(staging)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    try:
        # Without its recipe the former run is none any more; with .starting beside them, its remains are known as such.
        (path / RECIPE).unlink(missing_ok=True)
        for former in [item for item in path.iterdir() if item != staging and _is_own(item.name)]:
            _remove(former)
        (path / "checkpoints").mkdir()
        for file in sorted(staging.iterdir(), key=lambda file: file.name == RECIPE):
            file.replace(path / file.name)
        staging.rmdir()
    except OSError as fault:
        raise DataError(f"cannot make the run folder {path}: {fault.strerror or fault}") from fault


def tidy(path: Path) -> None:
    """Remove what a killed process left half written in the folder of a run."""
    for name in (STARTING, EXPORTING):
        shutil.rmtree(path / name, ignore_errors=True)
    remove_unfinished(path, RECIPE, RECORD, METRICS, CURVES)
    checkpoints.tidy(path / "checkpoints")


def _is_own(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in OWN)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def note(run: Path, **facts: Any) -> None:
    """Add facts to ``run.json``."""
    path = run / RECORD
    known = json.loads(path.read_text("utf8")) if path.is_file() else {}
    write_text(path, json.dumps({**known, **facts}, indent=2) + "\n")


def export(run: Path, model: PreTrainedModel, weights: Mapping[str, Any] | None = None) -> None:
    """Save the model into the run folder, ``config.json`` last: a folder that has one has everything.

    Raises CheckpointError if it cannot be written; what was there before stays.
    """
    staging = run / EXPORTING
    try:
        shutil.rmtree(staging, ignore_errors=True)
        model.save_pretrained(staging, state_dict=None if weights is None else dict(weights))
        apply_umask(staging)
        for file in sorted(staging.iterdir(), key=lambda file: file.name == CONFIG):
            file.replace(run / file.name)
    except (OSError, RuntimeError, SafetensorError) as fault:
        raise CheckpointError(f"the model cannot be saved in {run}: {fault}; its checkpoints are intact") from fault
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def rank() -> int:
    """The number of this process among those that torchrun or accelerate started."""
    return int(os.environ.get("RANK", "0"))
