"""Training: from a recipe to a run folder, and on from where a run stopped."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import PreTrainedModel, TrainerCallback, TrainerState
from transformers.utils import logging

from clockhands import __version__
from clockhands.devices import get_rank, open_device
from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.files import write_text
from clockhands.generation.score import describe_uniform_guess
from clockhands.locking import hold
from clockhands.progress import say, say_nothing
from clockhands.runs import Run, checkpoints
from clockhands.runs.folder import (
    CURVES,
    METRICS,
    RECIPE,
    add_facts,
    export_model,
    refuse_existing,
    start_folder,
    tidy_folder,
)
from clockhands.runs.recipe import Recipe, combine, load
from clockhands.runs.recipe.sections import Training
from clockhands.training import curves, keeping
from clockhands.training.architecture import build, configure
from clockhands.training.begin import beginning, forget, keep, refuse_itself, take_up
from clockhands.training.defaults import settled, updates_of
from clockhands.training.material import Material, prepare
from clockhands.training.precision import Precision, decide, of_record
from clockhands.training.room import check_batches, check_recipe
from clockhands.training.trainer import ClockhandsTrainer, arguments, compute_in
from clockhands.training.watch import Flow, Health, Record, Stop, TrainingStopped, forget_after

if TYPE_CHECKING:
    from clockhands.shapes import Tensor
    from clockhands.training.progress import Show

CHANGEABLE = (
    "max_steps",
    "epochs",
    "log_steps",
    "eval_steps",
    "save_steps",
    "save_minutes",
    "keep",
    "average",
    "patience",
    "report_to",
)
"""What of ``[training]`` may be another when a run is resumed."""


def train(
    recipe: Recipe | str | Path | Mapping[str, Any],
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
    material: Material | None = None,
    begin: Callable[[PreTrainedModel], None] | None = None,
    watchers: Sequence[TrainerCallback] = (),
    draw: bool = True,
    show: bool = False,
) -> Run:
    """Train what a recipe says (a file, tables or a ``Recipe``) into the folder ``out``.

    ``overrides`` are dotted fields: ``{"position.scheme": "rope"}``. ``material`` is what ``prepare`` gave for
    a recipe with the same data and tokenizer: runs that vary something else need not read and encode again.
    ``begin`` is given the new model, with the weights of ``training.begin_from``, before its first step; ``watchers``
    look on as transformers' callbacks do.
    ``draw``: leave a picture of the curves.
    Raises ConfigError for a faulty recipe and for weights to begin with that do not fit it, UsageError if ``out``
    exists, BusyError if another process writes there, DataError for faulty text, Diverged, and TrainingStopped after
    Ctrl-C (resume it then).
    """
    tell = say if show else say_nothing
    recipe = settled(_recipe(recipe, overrides or {}))
    _require(recipe.training.report_to)
    _check_launch(recipe.training)
    check_recipe(recipe)
    out = Path(out)
    with _settled(recipe.training), ExitStack() as held:
        asked = arguments(recipe.training, out / "checkpoints")
        with asked.main_process_first():
            if asked.process_index == 0:
                # What can be wrong is found before there is a folder, which would be in the way of the next attempt.
                refuse_existing(out, overwrite=overwrite)
                refuse_itself(recipe, out)
                material = material or prepare(recipe, progress=tell)
                recipe = settled(recipe, updates_of(recipe, material, asked.world_size))
                _check(recipe, material)
                begun = beginning(recipe, material)
                precision = decide(recipe.training, recipe.model, asked.device)
                if precision.sentence:
                    tell(precision.sentence)
                held.enter_context(hold(out))
                refuse_existing(out, overwrite=overwrite)
                with start_folder(out) as staging:
                    # Before recipe.toml, with which a folder can be resumed: a resumed run computes as it began.
                    add_facts(staging, precision=precision.to_dict())
                    if begun is not None:
                        keep(begun, staging, show=show)
                    material.tokenizers.save(staging)
                    write_text(staging / RECIPE, recipe.to_toml())
            else:
                material = material or prepare(recipe, Run(out).tokenizers)
                recipe = settled(recipe, updates_of(recipe, material, asked.world_size))
        compute_in(asked, Precision(**Run(out).record["precision"]))
        return _train(recipe, material, asked, out, show, begin=begin, others=watchers, draw=draw)


def resume(run: str | Path, overrides: Mapping[str, Any] | None = None, *, show: bool = False) -> Run:
    """Go on from the last checkpoint of a run, to the same weights as if it had not stopped; from the beginning if
    there is none. ``overrides`` may change how long a run is and how often it is looked at, such as
    ``training.max_steps``. A finished run that is not made longer is left as it is.

    Raises CheckpointError for a folder that is no run and for a damaged checkpoint, BusyError if another process writes
    there, UsageError for fewer steps than were made, DataError if the text has changed.
    """
    opened = Run.open(run)
    recipe = _extended(opened.recipe, overrides or {})
    _require(recipe.training.report_to)
    _check_launch(recipe.training)
    check_recipe(recipe)
    with _settled(recipe.training), ExitStack() as held:
        asked = arguments(recipe.training, Path(run) / "checkpoints")
        with asked.main_process_first():
            if asked.process_index == 0:
                held.enter_context(hold(Path(run)))
                tidy_folder(Path(run))
        # Until now another process may have written there.
        again = Run.open(run)
        if again.tables != opened.tables:
            opened, recipe = again, _extended(again.recipe, overrides or {})
        if opened.finished and recipe == opened.recipe:
            forget(opened.path)
            return opened
        last = next(iter(opened.checkpoints[::-1]), None)
        if last is not None:
            checkpoints.check(last)
        elif opened.finished:
            raise CheckpointError(
                f"{run} is finished and kept no checkpoint (training.save_steps, training.save_minutes) to go on from"
            )
        material = prepare(recipe, opened.tokenizers, progress=say if show and get_rank() == 0 else say_nothing)
        _check_resumed(opened, recipe, material, last)
        if asked.process_index == 0:
            # In this order: a run that is unfinished with its former recipe only finishes, and can be made longer then.
            if opened.finished:
                add_facts(opened.path, finished=False)
            write_text(opened.path / RECIPE, recipe.to_toml())
        compute_in(asked, of_record(opened.record, recipe.training, recipe.model, asked.device))
        return _train(recipe, material, asked, opened.path, show, last)


def _train(
    recipe: Recipe,
    material: Material,
    asked: Any,
    out: Path,
    show: bool,
    last: Path | None = None,
    begin: Callable[[PreTrainedModel], None] | None = None,
    others: Sequence[TrainerCallback] = (),
    draw: bool = True,
) -> Run:
    torch.manual_seed(recipe.training.seed)
    model = build(recipe, material.tokenizers)
    if last is None:
        take_up(recipe, model, out)
    if begin is not None:
        begin(model)
    stop = Stop()
    record, health = Record(out), Health(recipe.training, out)
    flow = Flow(recipe.training, stop, validates=material.validation is not None)
    shown = _show() if show else None
    watchers = [flow, health, record, *([shown] if shown else [])]
    trainer = _trainer(recipe)(recipe, material, model, asked, [*watchers, *others])
    trainer.last = last
    for watcher in watchers:
        watcher.trainer = trainer
    if asked.process_index == 0:
        add_facts(out, **_facts(model, material, asked), finished=False)
        forget_after(out / METRICS, 0 if last is None else checkpoints.get_step(last))
    if last is not None and _is_over(trainer, last):
        trainer._load_from_checkpoint(str(last))  # refuses the weights of another model
        return _finish(trainer, recipe, out, stopped=False, draw=draw, weights=checkpoints.read_weights(last))
    if show and asked.process_index == 0:
        say(_ahead(recipe, material, updates_of(recipe, material, asked.world_size), model))
    try:
        with stop.listening():
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
    except Exception as fault:
        logger = type(fault).__module__.partition(".")[0]
        if logger in recipe.training.report_to:
            raise UsageError(f"{logger}, which training.report_to names, refused: {fault}") from fault
        raise
    finally:
        if shown:
            shown.close()
    stopped = stop.asked and trainer.state.global_step < trainer.end()
    return _finish(trainer, recipe, out, stopped=stopped, draw=draw, weights=trainer.weights())


def _is_over(trainer: ClockhandsTrainer, last: Path) -> bool:
    """Whether the last checkpoint is of the last step: the run was killed while it finished. The state is read then."""
    trainer.state = TrainerState.load_from_json(str(last / checkpoints.STATE))
    trainer.state.max_steps = updates_of(trainer.recipe, trainer.material)
    return trainer.state.global_step >= trainer.end()


def _finish(
    trainer: ClockhandsTrainer,
    recipe: Recipe,
    out: Path,
    *,
    stopped: bool,
    draw: bool,
    weights: Mapping[str, Tensor] | None,
) -> Run:
    """Save the model and draw the curves. Raises TrainingStopped if the run did not get to its end."""
    run, step = Run(out).with_recipe(recipe), trainer.state.global_step
    if trainer.args.process_index == 0:
        loss, folder = keeping.read_losses(vars(trainer.state)), out / "checkpoints"
        keeping.discard(folder, recipe.training, loss, trainer.end())
        if not stopped and recipe.training.average != "none":
            weights = checkpoints.average_weights(keeping.select_averaged(folder, recipe.training, loss, step))
        export_model(out, trainer.bare(), weights)
        if draw:
            curves.draw(run.metrics, out / CURVES, out.name)
        add_facts(out, finished=not stopped, step=step)
        if not stopped:
            forget(out)
    trainer.accelerator.wait_for_everyone()
    if stopped:
        raise TrainingStopped(
            f"stopped at step {step} of {trainer.state.max_steps}; continue with: clockhands train --resume {out}"
        )
    return run


def _ahead(recipe: Recipe, material: Material, updates: int, model: PreTrainedModel) -> str:
    """One line about what is trained, and the loss from which it starts."""
    training, tokens = recipe.training, len(material.tokenizers.target)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"training {parameters:,} parameters for {updates:,} steps; learning rate {training.rate:g}, warm-up "
        f"{training.warmup:,} steps; the loss is in nats per token, and {describe_uniform_guess(tokens)}"
    )


def _trainer(recipe: Recipe) -> type[ClockhandsTrainer]:
    if not recipe.training.sharded:
        return ClockhandsTrainer
    from clockhands.training.sharded import ShardedTrainer

    return ShardedTrainer


def _facts(model: PreTrainedModel, material: Material, asked: Any) -> dict[str, Any]:
    return {
        "clockhands": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "device": str(asked.device),
        "threads": torch.get_num_threads(),
        "processes": asked.world_size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "data": material.fingerprint,
    }


def _recipe(recipe: Recipe | str | Path | Mapping[str, Any], overrides: Mapping[str, Any]) -> Recipe:
    if isinstance(recipe, (str, Path)):
        return load(recipe, overrides)
    if isinstance(recipe, Recipe) and not overrides:
        return recipe
    return combine(recipe.tables if isinstance(recipe, Recipe) else dict(recipe), overrides)


def _check(recipe: Recipe, material: Material) -> None:
    """Raise UsageError or ConfigError for what a recipe asks of this text and cannot have."""
    configure(recipe, material.tokenizers)
    check_batches(recipe, material)
    material.batches(recipe)
    _check_lengths(recipe, material)
    if recipe.training.eval_steps and material.validation is None:
        raise UsageError(f"training.eval_steps is given, but corpus {recipe.corpus!r} has no validation split")


def _check_resumed(opened: Run, recipe: Recipe, material: Material, last: Path | None) -> None:
    """Raise DataError if the text is another now, UsageError if the run has made more steps than are asked for."""
    if opened.record.get("data", material.fingerprint) != material.fingerprint:
        raise DataError(f"the text of {opened.path} is not what it was when training began; it cannot go on exactly")
    made, total = 0 if last is None else checkpoints.get_step(last), updates_of(recipe, material)
    if made > total:
        raise UsageError(
            f"{opened.path} has made {made} steps already, and {total} are asked for; give training.max_steps = {made} "
            f"to end it there, or more to go on"
        )


def _check_lengths(recipe: Recipe, material: Material) -> None:
    """Raise UsageError if an example is longer than a position table that refuses what lies behind its end."""
    splits = [split for split in (material.train, material.validation) if split is not None]
    longest = [max(lengths) for lengths in zip(*(split.longest for split in splits), strict=True)]
    # Pairs have two lengths, source and target; windows have one, whichever side reads them.
    sides = {"encoder": longest[0], "decoder": longest[-1]}
    for side in (side for side in recipe.model.sides if side in sides):
        position = recipe.model.position(side)
        declares = recipe.model.outline(side).declares
        limit = declares.max_length
        if limit is not None and declares.beyond == "raise" and position.transform is None and sides[side] > limit:
            raise UsageError(
                f"the {side}'s {position.scheme} has {limit} positions and the longest example {sides[side]} tokens; "
                f"raise position.max_length, or bound the examples (batches.max_length, batches.longer = 'drop')"
            )


def _extended(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    refused = [key for key in overrides if key not in [f"training.{name}" for name in CHANGEABLE]]
    if refused:
        allowed = ", ".join(f"training.{name}" for name in CHANGEABLE)
        raise UsageError(f"a resumed run keeps its recipe: {', '.join(refused)} cannot be changed; only {allowed} can")
    return combine(recipe.tables, overrides) if overrides else recipe


def _require(loggers: tuple[str, ...]) -> None:
    missing = [name for name in loggers if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training.report_to names {' and '.join(missing)}, not installed here: pip install {' '.join(missing)}"
        )


def _check_launch(training: Training) -> None:
    """Raise UsageError if the processes that were started, or this machine, are not those that the recipe asks for."""
    if training.device != "auto":
        open_device(training.device, "training.device")
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        raise UsageError(
            "accelerate's own FSDP (--use_fsdp) is not used here: leave it out, and set training.sharded = true"
        )
    if training.sharded and int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise UsageError(
            "training.sharded divides the model among processes, and there is one; start several: "
            "torchrun --nproc-per-node 2 -m clockhands train ..."
        )


def _show() -> Show:
    from clockhands.training.progress import Show

    return Show()


@contextmanager
def _settled(training: Training) -> Iterator[None]:
    """The recipe's number of threads, and silence of transformers; everything as before afterwards."""
    threads, bars, verbosity = torch.get_num_threads(), logging.is_progress_bar_enabled(), logging.get_verbosity()
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
