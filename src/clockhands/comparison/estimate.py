"""How long a plan will take: what a short training of the baseline takes besides its passes, and the sum of it all."""

from __future__ import annotations

import heapq
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from clockhands.comparison.plan import Plan
from clockhands.comparison.results import Cost
from clockhands.comparison.trial_scores import BEYOND, EXPLAINED, find_test_split
from clockhands.errors import PositionError
from clockhands.generation import Search, evaluate, measure_pair_loss, translate
from clockhands.runs import Run, open_run
from clockhands.runs.recipe import Recipe, vary_recipe
from clockhands.training import TrainingData, prepare, train

SHORT, LONG = 2, 8
"""Steps of two trainings: their difference is of the steps alone."""
WORKER = 5.0
"""Seconds of the imports of a worker, on one core of an ordinary laptop."""


@dataclass(frozen=True)
class Overheads:
    """Seconds of a trial besides the passes of its steps, and of a worker before its first trial.

    ``begin``: building, saving, opening. ``step``: of each step, what its forward and backward passes do not take.
    ``validation``: one pass over the validation split. ``scoring``: the test split and longer text.
    """

    worker: float
    begin: float
    step: float
    validation: float
    scoring: float


def estimate_trial(cost: Cost, overheads: Overheads, eval_steps: int | None) -> float:
    """Return the seconds of one trial, evaluations counted."""
    evaluations = cost.steps // eval_steps if eval_steps else 0
    steps = cost.steps * (cost.seconds + overheads.step)
    return overheads.begin + steps + evaluations * overheads.validation + overheads.scoring


def estimate_plan(plan: Plan, costs: Mapping[str, Cost], overheads: Overheads, workers: int = 1) -> float:
    """Return the seconds until the last trial of a plan ends: each goes, in their order, to the worker that is free."""
    free = [overheads.worker] * workers
    for name, seed in plan.trials:
        eval_steps = plan.get_recipe(name, seed).training.evaluation_interval
        heapq.heappush(free, heapq.heappop(free) + estimate_trial(costs[name], overheads, eval_steps))
    return max(free)


def measure_overheads(plan: Plan, costs: Mapping[str, Cost]) -> Overheads:
    """Train the baseline for a few steps, twice, and score it; everything is done as a trial does it.

    Raises as ``train`` does, where the baseline cannot be trained.
    """
    cost = costs[plan.baseline]
    quiet = {"training.eval_steps": None, "training.save_minutes": 0.0, "training.save_steps": None}
    recipe = vary_recipe(plan.get_recipe(plan.baseline, plan.seeds[0]), {**cost.changes, **quiet})
    begun = time.perf_counter()
    material = prepare(recipe)
    worker = WORKER + time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder:
        short, _ = _train(recipe, material, SHORT, Path(folder) / "short")
        long, run = _train(recipe, material, LONG, Path(folder) / "long")
        step = max((long - short) / (LONG - SHORT), cost.seconds)
        validation = _measure_validation(run, recipe, material)
        scoring = _measure_scoring(run, material)
    return Overheads(worker, max(short - SHORT * step, 0.0), step - cost.seconds, validation, scoring)


def _train(recipe: Recipe, material: TrainingData, steps: int, folder: Path) -> tuple[float, Run]:
    """Train for some steps as a trial does, and return the seconds that it took and the run."""
    begun = time.perf_counter()
    run = open_run(train(vary_recipe(recipe, {"training.max_steps": steps}), folder, material=material))
    return time.perf_counter() - begun, run


@torch.no_grad()
def _measure_validation(run: Run, recipe: Recipe, material: TrainingData) -> float:
    """Return the seconds of one pass over the validation split."""
    if material.validation is None:
        return 0.0
    begun = time.perf_counter()
    for indices in material.validation_batches(recipe):
        run.model(**material.collate([material.validation[i] for i in indices]))
    return time.perf_counter() - begun


def _measure_scoring(run: Run, material: TrainingData) -> float:
    """Return the seconds of scoring the test split and all longer text.

    Nothing is written that is longer than the references, since a trained model writes no longer either.
    """
    corpus = material.corpus
    begun = time.perf_counter()
    if corpus.task == "language modelling":
        documents, window = corpus.documents(find_test_split(corpus)), int(getattr(material.train, "length", 128))
        for times in (1, *BEYOND):
            try:
                evaluate(run, documents, length=times * window)
            except (PositionError, IndexError):
                continue  # the scheme has no such positions, which takes no time
        return time.perf_counter() - begun
    for split in (find_test_split(corpus), *(name for name in corpus if name not in EXPLAINED)):
        pairs = corpus.pairs(split)
        longest = max(len(run.tokenizers.target(pair.target)["input_ids"]) for pair in pairs)
        search = Search(max_length=longest)
        if split in EXPLAINED:
            evaluate(run, pairs, search=search)
        else:
            try:
                list(translate(run, [pair.source for pair in pairs], search))
                measure_pair_loss(run, pairs)
            except (PositionError, IndexError):
                continue
    return time.perf_counter() - begun
