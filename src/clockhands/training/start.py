"""Start a training from a recipe, or resume one that stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, TrainerCallback, TrainingArguments
from transformers.utils import logging

from clockhands.devices import get_rank, use_threads
from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.files import lock_folder, write_text
from clockhands.progress import ignore_sentence, print_sentence
from clockhands.runs import Run, checkpoints
from clockhands.runs.folder import (
    BEGIN,
    RECIPE,
    add_facts,
    refuse_existing,
    refuse_obstacles,
    start_folder,
    tidy_folder,
)
from clockhands.runs.recipe import Recipe, load_recipe, make_recipe
from clockhands.runs.recipe.sections import Training
from clockhands.training.checks import check_before_reading, check_material
from clockhands.training.model import read_begin_weights, store_begin_weights
from clockhands.training.precision import Precision, choose_precision, read_precision
from clockhands.training.schedule import count_updates, fill_in_auto, fill_in_for_text
from clockhands.training.session import run_session
from clockhands.training.trainer import complete_arguments, make_arguments
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
    with _set_up_libraries(recipe.training), ExitStack() as held:
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
                material = material or prepare(recipe, progress=print_sentence if progress else ignore_sentence)
                recipe = fill_in_for_text(recipe, material)
                check_material(recipe, material)
                for sentence in material.describe_bounds() if progress else ():
                    print_sentence(sentence)
                held.enter_context(_make_folder(recipe, material, arguments, out, overwrite, progress))
            else:
                material = material or prepare(recipe, Run(out).tokenizers)
                recipe = fill_in_for_text(recipe, material)
        complete_arguments(arguments, recipe.training, Precision(**Run(out).record["precision"]))
        options: dict[str, Any] = {"progress": progress, "begin": begin, "callbacks": callbacks, "draw": draw}
        return run_session(recipe, material, arguments, out, **options)


@contextmanager
def _make_folder(
    recipe: Recipe, material: TrainingData, arguments: TrainingArguments, out: Path, overwrite: bool, progress: bool
) -> Iterator[None]:
    """Make the run folder with its recipe and tokenizers, and hold its lock."""
    begun = read_begin_weights(recipe, material)
    precision = choose_precision(recipe.training, recipe.model, arguments.device)
    with lock_folder(out):
        refuse_existing(out, overwrite=overwrite)
        with start_folder(out) as staging:
            # Before recipe.toml, with which a folder can be resumed: a resumed run computes as it began.
            add_facts(staging, precision=asdict(precision))
            if begun is not None:
                store_begin_weights(begun, staging)
                if progress and begun.sentence:
                    print_sentence(begun.sentence)
            material.tokenizers.save(staging)
            write_text(staging / RECIPE, recipe.to_toml())
        yield


def resume(run: str | Path, overrides: Mapping[str, Any] | None = None, *, progress: bool = False) -> Run:
    """Resume a run from its last checkpoint, to the same weights as if it had not stopped.

    It starts from the beginning if there is no checkpoint. ``overrides`` may change how long a run is and how often it
    is evaluated and saved, such as ``training.max_steps``. A finished run that is not made longer is left as it is.

    Raises CheckpointError for a folder that is not a run and for a damaged checkpoint, BusyError if another process
    writes there, UsageError for fewer steps than were made, DataError if the text has changed.
    """
    opened, folder = Run.from_folder(run), Path(run)
    recipe = _extend(opened.recipe, overrides or {})
    check_before_reading(recipe)
    with _set_up_libraries(recipe.training), ExitStack() as held:
        arguments = make_arguments(recipe.training, folder / "checkpoints")
        with arguments.main_process_first():
            if arguments.process_index == 0:
                held.enter_context(lock_folder(folder))
                tidy_folder(folder)
        # Before the folder was locked, another process may have changed it.
        again = Run.from_folder(folder)
        if again.tables != opened.tables:
            opened, recipe = again, _extend(again.recipe, overrides or {})
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
        if arguments.process_index == 0:
            # In this order: a process killed in between leaves an unfinished run with its former recipe, which resumes.
            if opened.finished:
                add_facts(folder, finished=False)
            write_text(folder / RECIPE, recipe.to_toml())
        precision = read_precision(opened.record, recipe.training, recipe.model, arguments.device)
        complete_arguments(arguments, recipe.training, precision)
        return run_session(recipe, material, arguments, folder, progress=progress, last=last)


def _extend(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a run with changed overrides. Raises UsageError for those that a run keeps."""
    refused = ", ".join(key for key in overrides if key not in CHANGEABLE)
    if refused:
        raise UsageError(
            f"a resumed run keeps its recipe: {refused} cannot be changed; only {', '.join(CHANGEABLE)} can"
        )
    return make_recipe(recipe.tables, overrides) if overrides else recipe


@contextmanager
def _set_up_libraries(training: Training) -> Iterator[None]:
    """Set the recipe's number of threads and silence transformers; undo both afterwards."""
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    try:
        with use_threads(training.threads):
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
