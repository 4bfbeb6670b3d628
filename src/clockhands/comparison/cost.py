"""What a variant costs before it is trained, and what makes variants equal: width, parameters or compute."""

from __future__ import annotations

import heapq
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import TrainerCallback

from clockhands.comparison.plan import Plan, list_reasons
from clockhands.comparison.results import Cost
from clockhands.comparison.trial_runner import During, Inside, find_test_split, make_material_key, score_trial
from clockhands.data import IGNORED_LABEL
from clockhands.errors import ConfigError, UsageError
from clockhands.model.size import count_parameters
from clockhands.progress import SentenceProgress, ignore_sentence
from clockhands.runs import Run, open_run
from clockhands.training import Recipe, TrainingData, prepare, train, vary_recipe
from clockhands.training.model import build, check_batches, check_recipe, configure, find_training_device
from clockhands.training.schedule import choose_trial_precision

TIMED, MOST_TIMED, TIMED_SECONDS = 3, 20, 0.3
"""Batches that are timed, after two that are not: at least 3, and up to 20 while they take less than these seconds."""
CLOSE = 0.005
"""Parameters differ by at most this share where they are matched: one unit of a feed-forward layer is a step."""


def measure_costs(plan: Plan, progress: SentenceProgress = ignore_sentence) -> dict[str, Cost]:
    """Build and time every variant, and find what is to be matched. ``progress``: is called with what happens now.

    Raises ConfigError naming the variants that cannot be built, UsageError where they cannot be made equal.
    """
    progress("preparing the text")
    materials: dict[str, TrainingData] = {}
    recipes = {variant.name: plan.get_recipe(variant.name, plan.seeds[0]) for variant in plan.variants}
    for recipe in recipes.values():
        check_recipe(recipe)
    material = {}
    for name, recipe in recipes.items():
        key = make_material_key(recipe)
        if key not in materials:
            materials[key] = prepare(recipe)
        material[name] = materials[key]
    _check(plan, recipes, material)
    matched: dict[str, dict[str, int]] = {name: {} for name in recipes}
    if plan.match == "parameters":
        wanted = count_recipe_parameters(recipes[plan.baseline], material[plan.baseline])
        matched = {name: _match(name, recipe, material[name], wanted) for name, recipe in recipes.items()}
    recipes = {name: vary_recipe(recipe, matched[name]) for name, recipe in recipes.items()}
    measured = {}
    for number, (name, recipe) in enumerate(recipes.items(), 1):
        progress(f"timing a step of {name}, {number} of {len(recipes)} variants")
        measured[name] = _measure(recipe, material[name])
    kind, amount = plan.budget
    costs = {}
    for name, (count, flops, seconds) in measured.items():
        steps = amount
        if kind == "tokens":
            text, shown = material[name], list(islice(material[name].batches(recipes[name]), 20))
            labels = [text.collate([text.train[i] for i in indices])["labels"] for indices in shown]
            # Target tokens of a batch, from a sample of these.
            tokens = sum(int(part.ne(IGNORED_LABEL).sum()) for part in labels) / len(shown)
            steps = amount / (tokens * recipes[name].training.accumulate)
        elif kind == "seconds":
            steps = amount / seconds
        if plan.match == "compute":
            steps *= measured[plan.baseline][1] / flops
        costs[name] = Cost(count, max(1, round(steps)), flops, seconds, matched[name])
    return costs


def count_recipe_parameters(recipe: Recipe, material: TrainingData) -> int:
    """Count the parameters of a recipe's model without building it."""
    return count_parameters(configure(recipe, material.tokenizers).transformer_config)


def _check(plan: Plan, recipes: dict[str, Recipe], material: dict[str, TrainingData]) -> None:
    """Raise ConfigError naming every variant that cannot be built or is tested on other items: scores are paired."""
    faults = []
    for name, recipe in recipes.items():
        try:
            count_recipe_parameters(recipe, material[name])
            check_batches(recipe, material[name])
        except UsageError as fault:
            faults += [f"variant {name!r} cannot be built: {reason}" for reason in list_reasons(fault)]
    items = {name: part.corpus[find_test_split(part.corpus)] for name, part in material.items()}
    wanted = items[plan.baseline]
    for name, own in items.items():
        if own is not wanted and list(own) != list(wanted):
            place = next((n for n, (a, b) in enumerate(zip(own, wanted, strict=False)) if a != b), "the last")
            faults.append(
                f"variant {name!r} is tested on other items than {plan.baseline!r} ({len(own):,} and {len(wanted):,}; "
                f"the first that differs: {place}); vary nothing that changes the test split, or compare them apart"
            )
    if faults:
        raise ConfigError(faults, "the plan")


def _match(name: str, recipe: Recipe, material: TrainingData, wanted: int) -> dict[str, int]:
    """Return the settings that give a variant as many parameters as wanted: a width of its feed-forward layers.

    Parameters grow in a line with d_ff, so two counts tell all.
    """
    here, width = count_recipe_parameters(recipe, material), recipe.model.d_ff
    if here == wanted:
        return {}
    slope = count_recipe_parameters(vary_recipe(recipe, {"model.d_ff": width + 1}), material) - here
    chosen = width + round((wanted - here) / slope)
    matched = here + slope * (chosen - width)
    if chosen < 1 or abs(matched - wanted) > CLOSE * wanted:
        raise UsageError(
            f"variant {name!r} has {here:,} parameters and the baseline {wanted:,}: no model.d_ff makes them equal "
            f"to {CLOSE:.1%}; match the width instead"
        )
    return {"model.d_ff": chosen}


def _measure(recipe: Recipe, material: TrainingData) -> tuple[int, int, float]:
    """Return the parameters, the operations of a step (forward and backward) and its seconds, on real batches.

    It is computed where and as exactly as a trial computes it, or else what is slow there looks fast here.
    """
    torch.manual_seed(0)
    device = find_training_device(recipe)
    half = choose_trial_precision(recipe.training, device).name == "bf16"
    model = build(recipe, material.tokenizers).train().to(device)
    batches = cycle(material.batches(recipe))
    batch = next(batches)

    def step(indices: list[int]) -> None:
        inputs = material.collate([material.train[i] for i in indices])
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            loss = model(**{name: part.to(device) for name, part in inputs.items()}).loss
        loss.backward()
        model.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # a GPU is asked, and answers later

    with FlopCounterMode(display=False) as counter:
        step(batch)
    step(next(batches))
    begun, count = time.perf_counter(), 0  # batches differ in length, and so one alone says little
    while count < TIMED or (count < MOST_TIMED and time.perf_counter() - begun < TIMED_SECONDS):
        step(next(batches))
        count += 1
    seconds = (time.perf_counter() - begun) / count * recipe.training.accumulate
    flops = counter.get_total_flops() * recipe.training.accumulate
    return sum(weight.numel() for weight in model.parameters()), flops, seconds


# How long a plan will take: what a short training of the baseline takes besides its passes, and the sum of it all.

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


class _Stopwatch(TrainerCallback):
    """Keeps when each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.perf_counter())


def _time(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


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
        watch, start = _Stopwatch(), time.perf_counter()
        done = train(recipe, Path(folder) / "run", material=material, callbacks=[watch], draw=False)
        run, on_cpu = open_run(done), done.record["device"] == "cpu"
        trained = time.perf_counter() - start
        step = (watch.ends[-1] - watch.ends[FIRST - 1]) / (len(watch.ends) - FIRST)
        validation = _time(lambda: _validate(run, recipe, material))
        scoring = _time(lambda: score_trial(run, material, plan.metric, brief=True))
        inside = Inside(material, plan.inside)
        looking = _time(lambda: (inside.look(run.model), inside.look(run.model)))  # before and after training
        during = _time(lambda: inside.look(run.model, During(inside).measures))
    share = (time.process_time() - processor) / (time.perf_counter() - begun)
    return Overheads(
        worker=WORKER + text, begin=max(trained - count * step - validation, 0.0), step=step - cost.seconds,
        validation=validation, scoring=scoring, passes=cost.seconds, text=text, inside=looking, during=during,
        share=min(share, 1.0) if on_cpu else 1.0,
    )  # fmt: skip


@torch.no_grad()
def _validate(run: Run, recipe: Recipe, material: TrainingData) -> None:
    """Pass once over the validation split."""
    if material.validation is None:
        return
    for indices in material.validation_batches(recipe):
        run.model(**material.collate([material.validation[i] for i in indices]))
