"""One training session: a Trainer with its callbacks, from its first step or a checkpoint to the exported model."""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import PreTrainedModel, TrainerCallback, TrainerState, TrainingArguments

from clockhands import __version__
from clockhands.errors import UsageError
from clockhands.files import write_bytes, write_text
from clockhands.generation.score import describe_uniform_guess
from clockhands.progress import print_sentence
from clockhands.runs import Run, checkpoints
from clockhands.runs.card import write_card
from clockhands.runs.export import export_model
from clockhands.runs.folder import BEGIN, CURVES, METRICS, add_facts, read_metrics
from clockhands.runs.recipe import Recipe
from clockhands.training import keeping
from clockhands.training.callbacks import Flow, Health, ProgressBar, Record, Stop, TrainingStopped, Watcher
from clockhands.training.model import build, load_begin_weights
from clockhands.training.schedule import count_updates
from clockhands.training.trainer import ClockhandsTrainer
from clockhands.training.training_data import TrainingData

if TYPE_CHECKING:
    from clockhands.shapes import Tensor


def draw_curves(metrics: Sequence[Mapping[str, Any]], path: Path, title: str) -> Path | None:
    """Draw the curves to an SVG or PNG file, as the suffix of ``path`` says; None if there is nothing to draw."""
    names = ("loss", "validation_loss", "learning_rate")
    lines = {name: [(line["step"], line[name]) for line in metrics if name in line] for name in names}
    if not lines["loss"] and not lines["validation_loss"]:
        return None
    import matplotlib

    # Without pyplot: no window system is asked for, and nothing of the user's settings changes.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Text stays text and identifiers stay the same, so that equal runs make equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "clockhands"}):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        if lines["loss"]:
            axes.plot(*zip(*lines["loss"], strict=True), label="training loss", lw=1.5)
        if lines["validation_loss"]:
            axes.plot(*zip(*lines["validation_loss"], strict=True), label="validation loss", marker=".", lw=1.5)
        axes.set(xlabel="step", ylabel="loss of a target token (nats)", title=title)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper right")
        if lines["learning_rate"]:
            rates = axes.twinx()
            rates.plot(*zip(*lines["learning_rate"], strict=True), color="grey", lw=0.8, ls=":")
            rates.set(ylabel="learning rate (dotted)", ylim=(0, None))
        file = io.BytesIO()
        figure.savefig(file, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else None)
    return write_bytes(path, file.getvalue())


@dataclass
class Session:
    """A training of one recipe in one run folder.

    Args:
        recipe: with numbers in place of ``auto``.
        material: the text of the recipe, encoded.
        arguments: of the Trainer.
        out: the run folder, which holds its recipe already.
        progress: whether to show progress on standard error.
        last: the checkpoint to resume from; None: from the first step.
        prepare_model: called with the new model before its first step.
        callbacks: further ones, of transformers.
        draw: whether to draw the curves at the end.
    """

    recipe: Recipe
    material: TrainingData
    arguments: TrainingArguments
    out: Path
    progress: bool = False
    last: Path | None = None
    prepare_model: Callable[[PreTrainedModel], None] | None = None
    callbacks: Sequence[TrainerCallback] = ()
    draw: bool = True

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes."""
        return self.arguments.process_index == 0

    def run(self) -> Run:
        """Train to the end and export the model. Raises TrainingStopped after a stop, Diverged, UsageError."""
        stop = Stop()
        torch.manual_seed(self.recipe.training.seed)
        model = build(self.recipe, self.material.tokenizers)
        if self.last is None:
            load_begin_weights(self.recipe, model, self.out)
        if self.prepare_model is not None:
            self.prepare_model(model)
        trainer, watchers = self._make_trainer(model, stop)
        if self.is_main:
            add_facts(self.out, **self._collect_facts(trainer), finished=False)
            # The lines after the step from which training resumes are made again.
            made = 0 if self.last is None else checkpoints.get_step(self.last)
            kept = [line for line in read_metrics(self.out / METRICS) if line["step"] <= made]
            write_text(self.out / METRICS, "".join(json.dumps(line) + "\n" for line in kept))
        if self.last is not None:
            trainer.state = TrainerState.load_from_json(str(self.last / checkpoints.STATE))
            trainer.state.max_steps = count_updates(self.recipe, self.material)
            if trainer.state.global_step >= trainer.compute_end():  # it was killed while it finished
                trainer._load_from_checkpoint(str(self.last))  # refuses the weights of another model
                return self._finish(trainer, stopped=False, weights=checkpoints.read_weights(self.last))
        if self.progress and self.is_main:
            print_sentence(self._describe(trainer))
        try:
            with stop.listen():
                trainer.train(resume_from_checkpoint=None if self.last is None else str(self.last))
        except Exception as fault:
            logger = type(fault).__module__.partition(".")[0]
            if logger in self.recipe.training.report_to:
                raise UsageError(f"{logger}, which training.report_to names, refused: {fault}") from fault
            raise
        finally:
            for watcher in watchers:
                watcher.close()
        stopped = stop.is_set and trainer.state.global_step < trainer.compute_end()
        return self._finish(trainer, stopped=stopped, weights=trainer.weights())

    def _make_trainer(self, model: PreTrainedModel, stop: Stop) -> tuple[ClockhandsTrainer, list[Watcher]]:
        """Make the Trainer, and the callbacks that read what it counts."""
        training = self.recipe.training
        flow = Flow(training, stop, validates=self.material.validation is not None)
        watchers: list[Watcher] = [flow, Health(training, self.out), Record(self.out)]
        if self.progress:
            watchers.append(ProgressBar())
        kind = ClockhandsTrainer
        if training.sharded:
            from clockhands.training.sharded import ShardedTrainer as kind  # FSDP only where the model is divided
        trainer = kind(self.recipe, self.material, model, self.arguments, [*watchers, *self.callbacks])
        trainer.last = self.last
        for watcher in watchers:
            watcher.trainer = trainer
        return trainer, watchers

    def _finish(self, trainer: ClockhandsTrainer, *, stopped: bool, weights: Mapping[str, Tensor] | None) -> Run:
        """Save the model and draw the curves. Raises TrainingStopped if the run did not get to its end."""
        run = Run(self.out).cache_recipe(self.recipe)
        step, training = trainer.state.global_step, self.recipe.training
        if self.is_main:
            exported_step: int | None = step
            losses, folder = keeping.read_losses(vars(trainer.state)), self.out / "checkpoints"
            keeping.discard(folder, training, losses, trainer.compute_end())
            if not stopped:
                weights, exported_step = self._choose_weights(folder, losses, step, weights)
            export_model(self.out, trainer.unwrap_model(), weights)
            if self.draw:
                draw_curves(run.metrics, self.out / CURVES, self.out.name)
            add_facts(self.out, step=step, exported_step=exported_step)
            if not stopped:
                write_card(run)
            add_facts(self.out, finished=not stopped)
            if not stopped:
                (self.out / BEGIN).unlink(missing_ok=True)  # a finished run resumes from a checkpoint
        trainer.accelerator.wait_for_everyone()
        if stopped:
            raise TrainingStopped(
                f"stopped at step {step} of {trainer.state.max_steps}; continue with: clockhands train --resume "
                f"{self.out}"
            )
        return run

    def _choose_weights(
        self, folder: Path, losses: dict[int, float], step: int, weights: Mapping[str, Tensor] | None
    ) -> tuple[Mapping[str, Tensor] | None, int | None]:
        """Return the weights to export, or None for those that the Trainer holds, and the step that they are of.

        The step is None for a mean of checkpoints.
        """
        training = self.recipe.training
        if training.average != "none":
            return checkpoints.average_weights(keeping.select_averaged(folder, training, losses, step)), None
        lowest = keeping.select_lowest(checkpoints.list_checkpoints(folder), training, losses)
        if lowest is None or checkpoints.get_step(lowest) == step:
            return weights, step
        return checkpoints.read_weights(lowest), checkpoints.get_step(lowest)

    def _describe(self, trainer: ClockhandsTrainer) -> str:
        """Return one line about what is trained, and the loss from which it starts."""
        training, tokens = self.recipe.training, len(self.material.tokenizers.target)
        updates = count_updates(self.recipe, self.material)
        return (
            f"training {_count_parameters(trainer):,} parameters for {updates:,} steps; learning rate "
            f"{training.rate:g}, warm-up {training.warmup:,} steps; the loss is in nats per token, and "
            f"{describe_uniform_guess(tokens)}"
        )

    def _collect_facts(self, trainer: ClockhandsTrainer) -> dict[str, Any]:
        """Collect what ``run.json`` says of the versions, the machine, the model and the data."""
        return {
            "clockhands": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "device": str(self.arguments.device),
            "threads": torch.get_num_threads(),
            "processes": self.arguments.world_size,
            "parameters": _count_parameters(trainer),
            "data": self.material.fingerprint,
        }


def _count_parameters(trainer: ClockhandsTrainer) -> int:
    """Return the number of parameters of the whole model."""
    return sum(parameter.numel() for parameter in trainer.unwrap_model().parameters())
