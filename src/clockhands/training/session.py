"""One training session: a Trainer with its callbacks, from its first step or a checkpoint to the exported model."""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

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


def run_session(
    recipe: Recipe,
    material: TrainingData,
    arguments: TrainingArguments,
    out: Path,
    *,
    progress: bool = False,
    last: Path | None = None,
    begin: Callable[[PreTrainedModel], None] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    draw: bool = True,
) -> Run:
    """Train a recipe, with numbers in place of ``auto``, in a run folder that holds it already; export the model.

    ``last``: the checkpoint to resume from; the other arguments are those of ``train``. Raises TrainingStopped after a
    stop, Diverged, and UsageError for what a logger refuses.
    """
    training, stop, is_main = recipe.training, Stop(), arguments.process_index == 0
    torch.manual_seed(training.seed)
    model = build(recipe, material.tokenizers)
    if last is None:
        load_begin_weights(recipe, model, out)
    if begin is not None:
        begin(model)
    flow = Flow(training, stop, validates=material.validation is not None)
    watchers: list[Watcher] = [flow, Health(training, out), Record(out), *([ProgressBar()] if progress else [])]
    kind = ClockhandsTrainer
    if training.sharded:
        from clockhands.training.sharded import ShardedTrainer as kind  # FSDP only where the model is divided
    trainer = kind(recipe, material, model, arguments, [*watchers, *callbacks])
    trainer.last = last
    for watcher in watchers:
        watcher.trainer = trainer
    if is_main:
        add_facts(out, **_collect_facts(trainer), finished=False)
        # The lines after the step from which training resumes are made again.
        made = 0 if last is None else checkpoints.get_step(last)
        kept = [line for line in read_metrics(out / METRICS) if line["step"] <= made]
        write_text(out / METRICS, "".join(json.dumps(line) + "\n" for line in kept))
    if last is not None:
        trainer.state = TrainerState.load_from_json(str(last / checkpoints.STATE))
        trainer.state.max_steps = count_updates(recipe, material)
        if trainer.state.global_step >= trainer.compute_end():  # it was killed while it finished
            trainer._load_from_checkpoint(str(last))  # refuses the weights of another model
            return _finish(trainer, out, checkpoints.read_weights(last), stopped=False, draw=draw)
    if progress and is_main:
        print_sentence(_describe(trainer))
    try:
        with stop.listen():
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
    except Exception as fault:
        logger = type(fault).__module__.partition(".")[0]
        if logger in training.report_to:
            raise UsageError(f"{logger}, which training.report_to names, refused: {fault}") from fault
        raise
    finally:
        for watcher in watchers:
            watcher.close()
    stopped = stop.is_set and trainer.state.global_step < trainer.compute_end()
    return _finish(trainer, out, trainer.weights(), stopped=stopped, draw=draw)


def _finish(
    trainer: ClockhandsTrainer, out: Path, weights: Mapping[str, Any] | None, *, stopped: bool, draw: bool
) -> Run:
    """Export the model, with these weights in place of the Trainer's or those that the recipe chooses; write the rest.

    Raises TrainingStopped if the run did not get to its end.
    """
    folder, training, step = trainer.folder, trainer.recipe.training, trainer.state.global_step
    run = Run(out).cache_recipe(trainer.recipe)
    if trainer.args.process_index == 0:
        exported_step: int | None = step
        losses = keeping.read_losses(vars(trainer.state))
        keeping.discard(folder, training, losses, trainer.compute_end())
        lowest = keeping.select_lowest(checkpoints.list_checkpoints(folder), training, losses)
        if not stopped and training.average != "none":
            weights = checkpoints.average_weights(keeping.select_averaged(folder, training, losses, step))
            exported_step = None
        elif not stopped and lowest is not None and checkpoints.get_step(lowest) != step:
            weights, exported_step = checkpoints.read_weights(lowest), checkpoints.get_step(lowest)
        export_model(out, trainer.unwrap_model(), weights)
        if draw:
            draw_curves(run.metrics, out / CURVES, out.name)
        add_facts(out, step=step, exported_step=exported_step)
        if not stopped:
            write_card(run)
        add_facts(out, finished=not stopped)
        if not stopped:
            (out / BEGIN).unlink(missing_ok=True)  # a finished run resumes from a checkpoint
    trainer.accelerator.wait_for_everyone()
    if stopped:
        raise TrainingStopped(
            f"stopped at step {step} of {trainer.state.max_steps}; continue with: clockhands train --resume {out}"
        )
    return run


def _describe(trainer: ClockhandsTrainer) -> str:
    """Return one line about what is trained, and the loss from which it starts."""
    training, words = trainer.recipe.training, len(trainer.material.tokenizers.target)
    updates, warmup = count_updates(trainer.recipe, trainer.material), training.warmup
    return (
        f"training {_count_parameters(trainer):,} parameters for {updates:,} step{'s' * (updates != 1)}; learning rate "
        f"{training.rate:g}, warm-up {warmup:,} step{'s' * (warmup != 1)}; the loss is in nats per token, and "
        f"{describe_uniform_guess(words)}"
    )


def _collect_facts(trainer: ClockhandsTrainer) -> dict[str, Any]:
    """Return what ``run.json`` says of the versions, the machine, the model and the data."""
    return {
        "clockhands": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "device": str(trainer.args.device),
        "threads": torch.get_num_threads(),
        "processes": trainer.args.world_size,
        "parameters": _count_parameters(trainer),
        "data": trainer.material.fingerprint,
    }


def _count_parameters(trainer: ClockhandsTrainer) -> int:
    return sum(parameter.numel() for parameter in trainer.unwrap_model().parameters())


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
