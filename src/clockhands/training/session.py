"""One training: started from a recipe or resumed, from its first step or a checkpoint to the exported model."""

from __future__ import annotations

import io
import json
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel, TrainerCallback, TrainerState, TrainingArguments
from transformers.utils import logging

from clockhands import __version__
from clockhands.devices import get_rank, use_threads
from clockhands.errors import CheckpointError, ClockhandsWarning, DataError, UsageError, show_value
from clockhands.files import lock_folder, write_bytes, write_text
from clockhands.generation.score import describe_uniform_guess
from clockhands.pretrained import refuse_not_finite
from clockhands.progress import SentenceProgress, ignore_sentence, print_sentence
from clockhands.runs import Run, checkpoints
from clockhands.runs.export import export_model, write_card
from clockhands.runs.folder import (
    BEGIN,
    CURVES,
    METRICS,
    RECIPE,
    add_facts,
    read_metrics,
    refuse_existing,
    refuse_obstacles,
    start_folder,
    tidy_folder,
)
from clockhands.runs.recipe import Recipe, load_recipe, make_recipe
from clockhands.training.callbacks import (
    Diverged,
    Flow,
    Health,
    ProgressBar,
    Record,
    Stop,
    TrainingStopped,
    Watcher,
    describe_divergence,
)
from clockhands.training.model import (
    build,
    check_before_reading,
    check_material,
    load_begin_weights,
    read_begin_weights,
    store_begin_weights,
)
from clockhands.training.schedule import (
    Precision,
    choose_precision,
    count_updates,
    fill_in_auto,
    fill_in_for_text,
    read_precision,
)
from clockhands.training.trainer import (
    ClockhandsTrainer,
    complete_arguments,
    discard,
    make_arguments,
    read_losses,
    select_averaged,
    select_lowest,
)
from clockhands.training.training_data import TrainingData, prepare

_LENGTH = ("max_steps", "epochs", "log_steps", "eval_steps", "export", "save_steps", "save_minutes", "keep", "average")
CHANGEABLE = tuple(f"training.{name}" for name in (*_LENGTH, "patience", "report_to"))
"""Keys of a recipe that may be changed when a run is resumed."""


def train(
    recipe: Recipe | str | Path | Mapping[str, Any],
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
    material: TrainingData | None = None,
    begin: Callable[[PreTrainedModel], None] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    draw: bool = True,
    progress: bool = False,
) -> Run:
    """Train what a recipe says (a file, tables or a ``Recipe``) into the folder ``out``.

    Args:
        overrides: dotted fields of the recipe to change: ``{"position.scheme": "rope"}``.
        overwrite: replace a run in ``out``.
        material: what ``prepare`` returned for a recipe with the same data and tokenizer: runs that vary something else
            need not read and encode again.
        begin: called with the new model, which holds the weights of ``training.begin_from``, before its first step.
        callbacks: of transformers.
        draw: draw the curves at the end.
        progress: show progress on standard error.

    Raises ConfigError for a faulty recipe and for weights to begin with that do not fit it, UsageError if ``out``
    exists, BusyError if another process writes there, DataError for faulty text, Diverged, and TrainingStopped after
    Ctrl-C (resume it then).
    """
    if isinstance(recipe, (str, Path)):
        recipe = load_recipe(recipe, overrides)
    elif overrides or not isinstance(recipe, Recipe):
        recipe = make_recipe(recipe.tables if isinstance(recipe, Recipe) else dict(recipe), overrides or {})
    recipe, out = fill_in_auto(recipe), Path(out)
    check_before_reading(recipe)
    with _set_up_libraries(recipe), ExitStack() as held:
        arguments = make_arguments(recipe.training, out / "checkpoints")
        with arguments.main_process_first():
            if arguments.process_index == 0:
                # What can be wrong is found before there is a folder, which would be in the way of the next attempt.
                refuse_existing(out, overwrite=overwrite)
                source = recipe.training.begin_from
                if source is not None and Path(source).resolve().is_relative_to(out.resolve()):
                    raise UsageError(
                        f"training.begin_from is {source}, which the new run in {out} would replace; choose another "
                        "folder"
                    )
                say = print_sentence if progress else ignore_sentence
                material = material or prepare(recipe, progress=say)
                recipe = fill_in_for_text(recipe, material)
                check_material(recipe, material)
                for sentence in material.describe_bounds() if progress else ():
                    say(sentence)
                held.enter_context(_make_folder(recipe, material, arguments, out, overwrite, say))
            else:
                material = material or prepare(recipe, Run(out).tokenizers)
                recipe = fill_in_for_text(recipe, material)
        complete_arguments(arguments, recipe.training, Precision(**Run(out).record["precision"]))
        options: dict[str, Any] = {"progress": progress, "begin": begin, "callbacks": callbacks, "draw": draw}
        return _run_session(recipe, material, arguments, out, **options)


@contextmanager
def _make_folder(
    recipe: Recipe,
    material: TrainingData,
    arguments: TrainingArguments,
    out: Path,
    overwrite: bool,
    say: SentenceProgress,
) -> Iterator[None]:
    """Make the run folder with its recipe and tokenizers, and hold its lock."""
    begun = read_begin_weights(recipe, material)
    precision = choose_precision(recipe.training, recipe.model, arguments.device)
    with lock_folder(out):
        refuse_existing(out, overwrite=overwrite)  # another process may have made it meanwhile
        with start_folder(out) as staging:
            # Before recipe.toml, with which a folder can be resumed: a resumed run computes as it began.
            add_facts(staging, precision=asdict(precision))
            if begun is not None:
                store_begin_weights(begun, staging)
                if begun.sentence:
                    say(begun.sentence)
            material.tokenizers.save(staging)
            write_text(staging / RECIPE, recipe.to_toml())
        yield


def resume(run: str | Path, overrides: Mapping[str, Any] | None = None, *, progress: bool = False) -> Run:
    """Resume a run from its last checkpoint, to the same weights as if it had not stopped.

    It starts from the beginning if there is no checkpoint. ``overrides`` may change how long a run is and how often it
    is evaluated and saved, such as ``training.max_steps``. A finished run that is not made longer is left as it is.
    A ClockhandsWarning tells of other releases, threads, processes or another device than those that it began with.

    Raises CheckpointError for a folder that is not a run and for a damaged checkpoint, BusyError if another process
    writes there, UsageError for fewer steps than were made, DataError if the text has changed.
    """
    opened, folder = Run.from_folder(run), Path(run)
    recipe = extend_recipe(opened.recipe, overrides or {})
    check_before_reading(recipe)
    with _set_up_libraries(recipe), ExitStack() as held:
        arguments = make_arguments(recipe.training, folder / "checkpoints")
        with arguments.main_process_first():
            if arguments.process_index == 0:
                held.enter_context(lock_folder(folder))
                tidy_folder(folder)
        # Before the folder was locked, another process may have changed it.
        again = Run.from_folder(folder)
        if again.tables != opened.tables:
            opened, recipe = again, extend_recipe(again.recipe, overrides or {})
        if opened.finished and recipe == opened.recipe:
            (folder / BEGIN).unlink(missing_ok=True)
            return opened
        refuse_obstacles(folder)
        last = next(iter(opened.checkpoints[::-1]), None)
        if last is not None:
            checkpoints.check_resumable(last)
        elif opened.finished:
            raise CheckpointError(
                f"{folder} is finished and kept no checkpoint (training.save_steps, training.save_minutes) to go on "
                "from"
            )
        say = print_sentence if progress and get_rank() == 0 else ignore_sentence
        material = prepare(recipe, opened.tokenizers, progress=say)
        if opened.record.get("data", material.fingerprint) != material.fingerprint:
            raise DataError(f"the text of {folder} is not what it was when training began; it cannot go on exactly")
        made, total = 0 if last is None else checkpoints.get_step(last), count_updates(recipe, material)
        if made > total:
            raise UsageError(
                f"{folder} has made {made} steps already, and {total} are asked for; give training.max_steps = {made} "
                "to end it there, or more to go on"
            )
        here, record = _describe_machine(arguments), opened.record
        others = [f"{name} {show_value(record[name])}" for name in here if record.get(name, here[name]) != here[name]]
        if arguments.process_index == 0:
            if others:
                text = f"{folder} began with {', '.join(others)}, which is not so here; its last bits will be others"
                warnings.warn(text, ClockhandsWarning, stacklevel=2)
            # In this order: a process killed in between leaves an unfinished run with its former recipe, which resumes.
            if opened.finished:
                add_facts(folder, finished=False)
            write_text(folder / RECIPE, recipe.to_toml())
        precision = read_precision(opened.record, recipe.training, recipe.model, arguments.device)
        complete_arguments(arguments, recipe.training, precision)
        return _run_session(recipe, material, arguments, folder, progress=progress, last=last)


def extend_recipe(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a run with changed overrides. Raises UsageError for those that a run keeps."""
    refused = ", ".join(key for key in overrides if key not in CHANGEABLE)
    if refused:
        raise UsageError(
            f"a resumed run keeps its recipe: {refused} cannot be changed; only {', '.join(CHANGEABLE)} can"
        )
    return make_recipe(recipe.tables, overrides) if overrides else recipe


@contextmanager
def _set_up_libraries(recipe: Recipe) -> Iterator[None]:
    """Set the recipe's number of threads and silence transformers; undo both afterwards."""
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    try:
        with use_threads(recipe.training.threads):
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _run_session(
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
    training, stop = recipe.training, Stop()
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
    updates = count_updates(recipe, material)
    started = _record_start(trainer, out, updates) if arguments.process_index == 0 else ""
    if last is not None:
        trainer.state = TrainerState.load_from_json(str(last / checkpoints.STATE))
        trainer.state.max_steps = updates
        if trainer.state.global_step >= trainer.compute_end():  # it was killed while it finished
            trainer._load_from_checkpoint(str(last))  # refuses the weights of another model
            return _finish(trainer, out, checkpoints.read_weights(last), stopped=False, draw=draw)
    if progress and started:
        print_sentence(started)
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


def _describe_machine(arguments: TrainingArguments) -> dict[str, Any]:
    """Return what the last bits of a result depend on, besides the recipe and the text."""
    return {
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "device": str(arguments.device),
        "threads": torch.get_num_threads(),
        "processes": arguments.world_size,
    }


def _record_start(trainer: ClockhandsTrainer, out: Path, updates: int) -> str:
    """Write what ``run.json`` says of versions, machine, model and data; keep the metrics up to the step that is
    resumed, as the lines after it are made again. Return one line about what is trained, and the loss it starts from.
    """
    training = trainer.recipe.training
    parameters = sum(parameter.numel() for parameter in trainer.unwrap_model().parameters())
    facts: dict[str, Any] = {
        "clockhands": __version__,
        "python": platform.python_version(),
        **_describe_machine(trainer.args),
        "parameters": parameters,
        "data": trainer.material.fingerprint,
    }
    add_facts(out, **facts, finished=False)
    made = 0 if trainer.last is None else checkpoints.get_step(trainer.last)
    kept = [line for line in read_metrics(out / METRICS) if line["step"] <= made]
    write_text(out / METRICS, "".join(json.dumps(line) + "\n" for line in kept))
    return (
        f"training {parameters:,} parameters for {updates:,} step{'s' * (updates != 1)}; learning rate "
        f"{training.rate:g}, warm-up {training.warmup:,} step{'s' * (training.warmup != 1)}; the loss is in nats per "
        f"token, and {describe_uniform_guess(len(trainer.material.tokenizers.target))}"
    )


def _finish(
    trainer: ClockhandsTrainer, out: Path, weights: Mapping[str, Any] | None, *, stopped: bool, draw: bool
) -> Run:
    """Export the model, with these weights in place of the Trainer's or those that the recipe chooses; write the rest.

    Raises TrainingStopped if the run did not get to its end, and Diverged for weights that are NaN or infinite: what
    the last step made of them was in no loss.
    """
    folder, training, step = trainer.folder, trainer.recipe.training, trainer.state.global_step
    try:
        refuse_not_finite((weights or dict(trainer.unwrap_model().named_parameters())).items(), out)
    except CheckpointError as fault:
        sentence = f"after step {step} there are weights that are NaN or infinite"
        raise Diverged(describe_divergence(sentence, training, out)) from fault
    run = Run(out)
    vars(run)["recipe"] = trainer.recipe  # where cached_property keeps what it has computed
    if trainer.args.process_index == 0:
        exported_step: int | None = step
        losses = read_losses(vars(trainer.state))
        discard(folder, training, losses, trainer.compute_end())
        lowest = select_lowest(checkpoints.list_checkpoints(folder), training, losses)
        if not stopped and training.average != "none":
            weights = checkpoints.average_weights(select_averaged(folder, training, losses, step))
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
