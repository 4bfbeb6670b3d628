"""Run one trial: train a variant from a seed, score it, look inside it, and note its peak memory.

Variants begin with the same weights wherever names and shapes agree. A model draws its weights from one stream, so that
one parameter more shifts all that follow; here each module draws from a stream of its own, seeded by the trial's seed
and the module's name."""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clockhands import __version__
from clockhands.comparison.cost import make_material_key
from clockhands.comparison.model_measures import During, Inside
from clockhands.comparison.trial import CurvePoint, Job, Measurements, StepValues, TargetReached, Trial
from clockhands.comparison.trial_scores import require_numbers, score_trial
from clockhands.errors import BusyError, ClockhandsError
from clockhands.findings import Number
from clockhands.machine import describe_machine
from clockhands.runs import Run, open_run
from clockhands.runs.recipe import make_recipe, vary_recipe
from clockhands.training import Diverged, Recipe, TrainingData, TrainingStopped, prepare, train
from clockhands.training.model import load_begin_weights
from clockhands.training.precision import choose_trial_precision
from clockhands.training.schedule import export_last

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel
import resource

MOST_POINTS = 200
"""Points that are kept of a learning curve, so that a long training does not fill the file."""


def run_trial(job: Job) -> Trial:
    """Train and measure; a run that diverges or fails is a trial too.

    Raises TrainingStopped after Ctrl-C, and BusyError where another process runs the same trial.
    """
    head: dict[str, Any] = {"variant": job.variant, "seed": job.seed, "version": __version__}
    try:
        trial = Trial(**head, status="finished", **_train_and_measure(job))
    except (BusyError, TrainingStopped):
        raise
    except Diverged as fault:
        trial = Trial(**head, status="diverged", error=str(fault))
    except (ClockhandsError, RuntimeError, ValueError, IndexError) as fault:
        trial = Trial(**head, status="failed", error=f"{type(fault).__name__}: {fault}")
    if not job.keep:
        shutil.rmtree(job.folder, ignore_errors=True)
    return trial


def load_material(recipe: Recipe) -> TrainingData:
    """Return corpus, tokenizers and encoded text of a recipe; those of the last recipe are kept in this process."""
    key = make_material_key(recipe)
    if key not in _MATERIALS:
        _MATERIALS.clear()
        _MATERIALS[key] = prepare(recipe)
    return _MATERIALS[key]


_MATERIALS: dict[str, TrainingData] = {}
"""The material of the last recipe, by its key (``make_material_key``)."""


def _train_and_measure(job: Job) -> dict[str, Any]:
    """Train as the job says, score the model and look inside it: fields of ``Trial``."""
    recipe = make_recipe(dict(job.tables), {})
    # A precision that depends on no processor, so that all trials compute alike.
    gpu = torch.cuda.is_available() and recipe.training.device != "cpu"
    precision = choose_trial_precision(recipe.training, torch.device("cuda" if gpu else "cpu"))
    recipe = export_last(vary_recipe(recipe, {"training.precision": precision.name}))
    material = load_material(recipe)
    inside = Inside(material, job.inside)
    before: dict[str, float] = {}
    during = During(inside)

    def begin(model: Any) -> None:
        draw_by_name(model, job.seed)
        load_begin_weights(recipe, model, Path(job.folder))
        before.update(inside.look(model.eval()))
        model.train()
        torch.manual_seed(job.seed)

    _reset_peak()
    begun = time.perf_counter()
    run = train(recipe, job.folder, overwrite=True, material=material, begin=begin, callbacks=[during], draw=job.keep)
    seconds = time.perf_counter() - begun
    opened = open_run(run)
    scores = score_trial(opened, material, job.metric)
    require_numbers(scores["items"])
    seen = tuple(StepValues(step, values) for step, values in during.seen)
    measured = Measurements(before, seen, inside.look(opened.model)) if job.inside else None
    return {**scores, **_list_facts(run, job.target, seconds), "inside": measured}


def _list_facts(run: Run, target: Number | None, seconds: float) -> dict[str, Any]:
    """Return what a run says of itself: fields of ``Trial``."""
    return {
        "steps": run.record["step"],
        "seconds": round(seconds, 2),
        "parameters": run.record["parameters"],
        "peak_mib": _read_peak_mebibytes(),
        "tokens_per_second": float(
            np.median([line["tokens_per_second"] for line in run.metrics if "tokens_per_second" in line])
        ),
        "curve": _read_curve(run),
        "reached": _find_target_step(run, target, seconds),
        "torch": run.record["torch"],
        "device": run.record["device"],
        "machine": describe_machine(run.record["device"]),
    }


def _read_curve(run: Run) -> tuple[CurvePoint, ...]:
    """Return at most ``MOST_POINTS`` steps of the learning curve."""
    merged: dict[int, CurvePoint] = {}
    for line in run.metrics:
        point = merged.get(line["step"], CurvePoint(line["step"], None, None))
        for field, name in (("training_loss", "loss"), ("validation_loss", "validation_loss")):
            if name in line and math.isfinite(line[name]):
                point = point._replace(**{field: round(line[name], 5)})
        merged[point.step] = point
    points = tuple(merged.values())
    return points[:: max(1, math.ceil(len(points) / MOST_POINTS))]


def _find_target_step(run: Run, target: Number | None, seconds: float) -> TargetReached | None:
    """Return the first evaluation (or log line, without a validation split) at or below the target."""
    if target is None:
        return None
    lines = run.metrics
    name = "validation_loss" if any("validation_loss" in line for line in lines) else "loss"
    step = next((line["step"] for line in lines if name in line and line[name] <= target), None)
    return None if step is None else TargetReached(step, round(seconds * step / run.record["step"], 2))


@torch.no_grad()
def draw_by_name(model: ClockhandsPreTrainedModel, seed: int) -> None:
    """Draw the weights of a new model again, each module from a stream of its own."""
    for name, draw in model.transformer.list_initialisers(schemes=True):
        stream = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
        torch.manual_seed(int.from_bytes(stream, "big"))
        draw()
    torch.manual_seed(seed)


STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _reset_peak() -> None:
    """Forget earlier peaks, where the system can (CUDA, Linux)."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        CLEAR.write_text("5")  # proc(5): resets the peak resident set size
    except OSError:
        return


def _read_peak_mebibytes() -> float:
    """Return the peak since ``_reset_peak``: allocated on the GPU, or resident in this process and its libraries."""
    if torch.cuda.is_available():
        return round(torch.cuda.max_memory_allocated() / 2**20, 1)
    try:
        line = next(text for text in STATUS.read_text().splitlines() if text.startswith("VmHWM"))
        return round(int(line.split()[1]) / 1024, 1)
    except (OSError, StopIteration):
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
