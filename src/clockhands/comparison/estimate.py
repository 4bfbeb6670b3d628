"""How long a plan will take: what a short training of the baseline takes besides its passes, and the sum of it all."""

from __future__ import annotations

import heapq
import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from clockhands.comparison.cost import make_material_key
from clockhands.comparison.model_measures import During, Inside
from clockhands.comparison.plan import Plan
from clockhands.comparison.results import Cost
from clockhands.comparison.trial_scores import BEYOND, EXPLAINED, find_test_split
from clockhands.errors import PositionError, ShortTextError
from clockhands.generation import Search, evaluate, measure_pair_loss, translate
from clockhands.runs import Run, open_run
from clockhands.runs.recipe import Recipe, vary_recipe
from clockhands.training import TrainingData, prepare, train

FIRST = 2
"""The first steps of a training, which are slower than the others."""
LEAST, MOST, ENOUGH = 6, 60, 1.5
"""Further steps that are timed: as many as take ``ENOUGH`` seconds, between these numbers."""
WORKER = 5.0
"""Seconds of the imports of a worker, on one core of an ordinary laptop."""
BUSY = 0.8
"""A smaller share of a processor, and the machine is called busy with something else."""


@dataclass(frozen=True)
class Overheads:
    """Seconds of a trial besides the passes of its steps, and of a worker before its first trial.

    ``worker``: imports and first text. ``text``: every further text that it prepares. ``begin``: building, saving,
    opening. ``step``: of each step, what its forward and backward passes do not take; below 0 where these take less in
    a training than alone. ``validation``: one pass over the validation split. ``scoring``: the test split and longer
    text. ``passes``: of a step of the baseline, of which validation and scoring are. ``inside``: the measures inside a
    model, before and after training; ``during``: those at each evaluation. ``share``: of a processor, which this
    measurement got.
    """

    worker: float
    begin: float
    step: float
    validation: float
    scoring: float
    passes: float
    text: float = 0.0
    inside: float = 0.0
    during: float = 0.0
    share: float = 1.0

    @property
    def busy(self) -> bool:
        """Whether something else kept the processor from this measurement, so that all of it is too slow."""
        return self.share < BUSY


def estimate_trial(cost: Cost, overheads: Overheads, eval_steps: int | None) -> float:
    """Return the seconds of one trial, evaluations counted: there is one after the last step in any case.

    A variant whose steps take longer than the baseline's is taken to be validated and scored as much slower.
    """
    evaluations = math.ceil(cost.steps / eval_steps) if eval_steps else 1
    slower = cost.seconds / overheads.passes
    steps = cost.steps * max(cost.seconds + overheads.step, 0.0)
    evaluated = evaluations * (slower * overheads.validation + overheads.during)
    return overheads.begin + steps + evaluated + slower * overheads.scoring + overheads.inside


def estimate_plan(plan: Plan, costs: Mapping[str, Cost], overheads: Overheads, workers: int = 1) -> float:
    """Return the seconds until the last trial of a plan ends: each goes, in their order, to the worker that is free.

    A worker keeps the text of its last trial, and prepares another where the next one needs it.
    """
    free = [(overheads.worker, number, "") for number in range(workers)]
    for name, seed in plan.trials:
        recipe = plan.get_recipe(name, seed)
        text = make_material_key(recipe)
        begun, number, last = heapq.heappop(free)
        another = overheads.text if last not in ("", text) else 0.0
        trial = estimate_trial(costs[name], overheads, recipe.training.evaluation_interval)
        heapq.heappush(free, (begun + another + trial, number, text))
    return max(ended for ended, *_ in free)


class _StepTimer(TrainerCallback):
    """Keeps when each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.perf_counter())


def measure_overheads(plan: Plan, costs: Mapping[str, Cost]) -> Overheads:
    """Train the baseline for a few steps and score it; everything is done as a trial does it.

    Raises as ``train`` does, where the baseline cannot be trained.
    """
    cost = costs[plan.baseline]
    count = FIRST + min(MOST, max(LEAST, round(ENOUGH / cost.seconds)))
    quiet = {"training.eval_steps": None, "training.save_minutes": 0.0, "training.save_steps": None}
    recipe = vary_recipe(
        plan.get_recipe(plan.baseline, plan.seeds[0]), {**cost.changes, **quiet, "training.max_steps": count}
    )
    processor, begun = time.process_time(), time.perf_counter()
    material = prepare(recipe)
    text = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder:
        timer, start = _StepTimer(), time.perf_counter()
        done = train(recipe, Path(folder) / "run", material=material, callbacks=[timer], draw=False)
        run, device = open_run(done), done.record["device"]
        trained = time.perf_counter() - start
        step = (timer.ends[-1] - timer.ends[FIRST - 1]) / (len(timer.ends) - FIRST)
        validation = _measure_validation(run, recipe, material)
        scoring = _measure_scoring(run, material)
        inside, during = _measure_inside(plan, run, material)
    share = (time.process_time() - processor) / (time.perf_counter() - begun)
    return Overheads(
        worker=WORKER + text,
        begin=max(trained - count * step - validation, 0.0),
        step=step - cost.seconds,
        validation=validation,
        scoring=scoring,
        passes=cost.seconds,
        text=text,
        inside=inside,
        during=during,
        share=min(share, 1.0) if device == "cpu" else 1.0,
    )


def _measure_inside(plan: Plan, run: Run, material: TrainingData) -> tuple[float, float]:
    """Return the seconds of what is measured inside the model before and after training, and at each evaluation."""
    inside = Inside(material, plan.inside)
    begun = time.perf_counter()
    inside.look(run.model)
    inside.look(run.model)
    both = time.perf_counter() - begun
    begun = time.perf_counter()
    inside.look(run.model, During(inside).measures)
    return both, time.perf_counter() - begun


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
        evaluate(run, documents, length=window)
        for times in BEYOND:
            try:
                evaluate(run, documents, length=times * window)
            except (PositionError, ShortTextError, IndexError):
                continue  # the scheme has no such positions, or the text ends, which takes no time
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
