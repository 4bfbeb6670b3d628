"""A run: a folder with a trained model, and everything that is read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clockhands.data import Tokenizers
from clockhands.devices import choose_device, open_device
from clockhands.errors import CheckpointError, UsageError
from clockhands.runs import checkpoints
from clockhands.runs.folder import (
    METRICS,
    RECIPE,
    RECORD,
    STARTING,
    describe_missing,
    find_model_folder,
    read_metrics,
    read_record,
)
from clockhands.runs.opening import open_configuration, open_model, open_tokenizers, read_clockhands_config
from clockhands.runs.recipe import Recipe, make_recipe, read_tables
from clockhands.schemes.rotary.trained_length import lacks_trained_length

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel
    from clockhands.model.position_config import Architecture


ACTIONS = {"encoder-decoder": "translates", "decoder": "continues text", "encoder": "fills in masked tokens"}
"""What a model of each architecture does."""
COMMANDS = {"encoder-decoder": 'clockhands translate {} "..."', "decoder": 'clockhands generate {} --prompt "..."'}
"""The command that uses a model of each architecture; its folder stands at ``{}``. No command uses an encoder."""


@dataclass(frozen=True)
class Run:
    """A training run on disk, finished or not, or any other Hugging Face folder with a model of this project.

    Model and tokenizers are opened when they are first asked for, and kept.

    Args:
        path: the folder; ``clockhands.runs.folder`` lists what lies in it.
        device: where the model computes: ``cpu``, ``cuda``, ...; None: the GPU if there is one.
        dtype: of the weights; ``auto``: as they were saved.
        position: options of the model's schemes to change for this use, such as ``{"spectrum": "yarn", "factor": 4.0}``
            to read longer texts.
    """

    path: Path
    device: str | None = field(default=None, compare=False)
    dtype: str | torch.dtype = field(default="auto", compare=False)
    position: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def from_folder(cls, path: str | Path) -> Run:
        """Return the training run in a folder; nothing is loaded. Raises CheckpointError if the folder is not one."""
        path = Path(path)
        if not (path / RECIPE).is_file():
            if (path / STARTING).is_dir():
                raise CheckpointError(
                    f"{path} holds a run that was stopped before it began; give the command that started it again"
                )
            raise CheckpointError(f"{path} is not a training run ({describe_missing(path, RECIPE)})")
        return cls(path)

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The tables of ``recipe.toml``, unchecked, so that those of any version can be read. Raises DataError."""
        return read_tables(self.path / RECIPE)

    @cached_property
    def recipe(self) -> Recipe:
        """The resolved recipe. Raises DataError or ConfigError where it cannot be read."""
        return make_recipe(self.tables, {}, source=str(self.path / RECIPE))

    @property
    def trained_length(self) -> int | None:
        """The most tokens that a text in training could have; None for pairs whose recipe names no bound.

        Raises DataError or ConfigError where the recipe cannot be read.
        """
        return self.recipe.trained_length

    @property
    def record(self) -> dict[str, Any]:
        """The facts in ``run.json``: versions, device, seeds, whether it is finished; empty before training begins."""
        path = self.path / RECORD
        return read_record(path) if path.exists() else {}

    @property
    def finished(self) -> bool:
        """Whether the run was trained to its end."""
        return bool(self.record.get("finished"))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        return read_metrics(self.path / METRICS)

    @property
    def validation_losses(self) -> dict[int, float]:
        """The validation loss in nats per token at each step at which it was measured."""
        return {line["step"]: line["validation_loss"] for line in self.metrics if "validation_loss" in line}

    @property
    def model_loss(self) -> tuple[int, float] | None:
        """The step whose weights the model has, and its validation loss in nats per token.

        None where no evaluation was of these weights: there is no validation split, or they are a mean.
        """
        record, losses = self.record, self.validation_losses
        step = record.get("exported_step", record.get("step"))
        return (step, losses[step]) if isinstance(step, int) and step in losses else None

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return checkpoints.list_checkpoints(self.path / "checkpoints")

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of source and target. Raises CheckpointError if the model was trained with others."""
        folder = find_model_folder(self.path)
        return Tokenizers.load(self.path) if folder is None else open_tokenizers(self.path, open_configuration(folder))

    @cached_property
    def model(self) -> ClockhandsPreTrainedModel:
        """The trained model in evaluation mode; where training has not ended, that of the last checkpoint.

        Raises CheckpointError if there is none yet or it cannot be read, UsageError for a device that is not in this
        machine and for a position option that no scheme of the model has, and ConfigError for one that a scheme
        refuses.
        """
        folder = find_model_folder(self.path)
        if folder is None:
            raise CheckpointError(
                f"{self.path} holds no model yet; continue with: clockhands train --resume {self.path}"
            )
        device = choose_device(self.device)
        model = open_model(folder, dtype=self.dtype, position=self._complete_position(folder))
        return model.to(device)  # type: ignore[arg-type]

    def _complete_position(self, folder: Path) -> Mapping[str, Any]:
        """Return ``position`` with the trained length, where a scheme needs that and the model does not have it."""
        if not self.position or not (self.path / RECIPE).is_file():
            return self.position
        config = read_clockhands_config(folder)[1]
        own = [{"scheme": side.scheme, **side.options} for side in map(config.get_position_config, config.sides)]
        # A spectrum without a scheme is that of the rotation of any layer.
        changed = [self.position, *({**table, **self.position} for table in own)]
        is_known = any(table.get("original_length") is not None for table in own)
        length = None if is_known or not any(map(lacks_trained_length, changed)) else self.trained_length
        return self.position if length is None else {**self.position, "original_length": length}

    @property
    def is_loaded(self) -> bool:
        """Whether the model is in memory."""
        return "model" in vars(self)

    def load(self) -> Run:
        """Load the model and the tokenizers now, instead of at their first use, and return this run.

        Raises what ``model`` and ``tokenizers`` raise.
        """
        _ = self.model, self.tokenizers
        return self

    @property
    def architecture(self) -> Architecture:
        """``encoder-decoder``, ``decoder`` or ``encoder``."""
        return self.model.config.transformer_config.architecture

    def require(self, architecture: Architecture, action: str) -> None:
        """Raise UsageError unless the model has this architecture; ``action``: what was to be done, "translate"."""
        if self.architecture != architecture:
            raise UsageError(
                f"cannot {action} with {self.path}: the model there {ACTIONS[self.architecture]}; this needs one that "
                f"{ACTIONS[architecture]}"
            )


def open_run(
    run: str | Path | Run,
    *,
    device: str | None = None,
    dtype: str | torch.dtype | None = None,
    position: Mapping[str, Any] | None = None,
) -> Run:
    """Open model and tokenizers of a finished run, given by its folder or as a ``Run``.

    A ``Run`` opens itself and is returned, so that its model is loaded once; one that is open is returned as it is.
    The arguments are those of ``Run``. If any is given for a ``Run``, the result is another one that differs in these.
    Raises CheckpointError if the folder is not a run, has no model of a training that ended, or cannot be read;
    UsageError for an option that no scheme of it has and for a device that is not in this machine; and ConfigError for
    a value that a scheme refuses.
    """
    run = run if isinstance(run, Run) else Run(Path(run))
    wanted = {"device": device, "dtype": dtype, "position": position}
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if changes:
        run = replace(run, **changes)
    if not run.is_loaded:
        if run.device is not None:
            open_device(run.device, "device")
        read_clockhands_config(run.path)
    return run.load()
