"""What a variant costs before it is trained, and what makes variants equal: width, parameters or compute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from clockhands.comparison.plan import Plan
from clockhands.comparison.results import Cost
from clockhands.comparison.trial_scores import find_test_split
from clockhands.data import IGNORED_LABEL
from clockhands.errors import ConfigError, UsageError
from clockhands.model.size import count_parameters
from clockhands.training import Recipe, TrainingData, prepare, vary_recipe
from clockhands.training.architecture import build, configure
from clockhands.training.memory_check import check_batches, check_recipe, find_training_device
from clockhands.training.precision import choose_trial_precision

TIMED, MOST_TIMED, TIMED_SECONDS = 3, 20, 0.3
"""Batches that are timed, after two that are not: at least 3, and up to 20 while they take less than these seconds."""
CLOSE = 0.005
"""Parameters differ by at most this share where they are matched: one unit of a feed-forward layer is a step."""


def measure_costs(plan: Plan) -> dict[str, Cost]:
    """Build and time every variant, and find what is to be matched.

    Raises ConfigError naming the variants that cannot be built, UsageError where they cannot be made equal.
    """
    materials: dict[str, TrainingData] = {}
    recipes = {variant.name: plan.get_recipe(variant.name, plan.seeds[0]) for variant in plan.variants}
    for recipe in recipes.values():
        check_recipe(recipe)
    for recipe in recipes.values():
        if make_material_key(recipe) not in materials:
            materials[make_material_key(recipe)] = prepare(recipe)
    material = {name: materials[make_material_key(recipe)] for name, recipe in recipes.items()}
    _check(plan, recipes, material)
    if plan.match == "parameters":
        matched = _match_parameters(plan, recipes, material)
    else:
        matched = {name: {} for name in recipes}
    recipes = {name: vary_recipe(recipe, matched[name]) for name, recipe in recipes.items()}
    measured = {name: _measure(recipe, material[name]) for name, recipe in recipes.items()}
    return _add_steps(plan, recipes, material, measured, matched)


def make_material_key(recipe: Recipe) -> str:
    """Return what decides corpus, tokenizers and encoded text: trials with equal keys share these."""
    tables = recipe.tables
    return repr(
        (tables["data"], tables["tokenizer"], tables["batches"], recipe.model.architecture, recipe.training.text_seed)
    )


def count_recipe_parameters(recipe: Recipe, material: TrainingData) -> int:
    """Count the parameters of a recipe's model without building it."""
    return count_parameters(configure(recipe, material.tokenizers).transformer_config)


def _check(plan: Plan, recipes: dict[str, Recipe], material: dict[str, TrainingData]) -> None:
    """Raise ConfigError naming every variant that cannot be built or is tested on other items."""
    faults = []
    for name, recipe in recipes.items():
        try:
            count_recipe_parameters(recipe, material[name])
            check_batches(recipe, material[name])
        except UsageError as fault:
            reasons = fault.faults if isinstance(fault, ConfigError) else (str(fault),)
            faults += [f"variant {name!r} cannot be built: {reason}" for reason in reasons]
    faults += _compare_test_items(plan, material)
    if faults:
        raise ConfigError(faults, "the plan")


def _compare_test_items(plan: Plan, material: dict[str, TrainingData]) -> list[str]:
    """Name the variants whose test items are not the baseline's: their scores could not be paired."""
    corpora = {name: part.corpus for name, part in material.items()}
    items = {name: corpus[find_test_split(corpus)] for name, corpus in corpora.items()}
    wanted, faults = items[plan.baseline], []
    for name, own in items.items():
        if own is not wanted and list(own) != list(wanted):
            place = next((n for n, (a, b) in enumerate(zip(own, wanted, strict=False)) if a != b), "the last")
            faults.append(
                f"variant {name!r} is tested on other items than {plan.baseline!r} ({len(own):,} and {len(wanted):,}; "
                f"the first that differs: {place}); vary nothing that changes the test split, or compare them apart"
            )
    return faults


def _match_parameters(
    plan: Plan, recipes: dict[str, Recipe], material: dict[str, TrainingData]
) -> dict[str, dict[str, int]]:
    """Return the settings that give each variant as many parameters as the baseline: a width of feed-forward layers."""
    wanted = count_recipe_parameters(recipes[plan.baseline], material[plan.baseline])
    return {name: _match(name, recipe, material[name], wanted) for name, recipe in recipes.items()}


def _match(name: str, recipe: Recipe, material: TrainingData, wanted: int) -> dict[str, int]:
    """Return those settings of one variant. Parameters grow in a line with d_ff, so two counts tell all."""
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
    seconds = _time_steps(step, batches) * recipe.training.accumulate
    flops = counter.get_total_flops() * recipe.training.accumulate
    return sum(weight.numel() for weight in model.parameters()), flops, seconds


def _time_steps(step: Callable[[list[int]], None], batches: Iterator[list[int]]) -> float:
    """Return the mean seconds of a step: batches differ in length, and so one alone says little."""
    begun, count = time.perf_counter(), 0
    while count < TIMED or (count < MOST_TIMED and time.perf_counter() - begun < TIMED_SECONDS):
        step(next(batches))
        count += 1
    return (time.perf_counter() - begun) / count


def _add_steps(
    plan: Plan,
    recipes: dict[str, Recipe],
    material: dict[str, TrainingData],
    measured: dict[str, tuple[int, int, float]],
    matched: Mapping[str, Mapping[str, Any]],
) -> dict[str, Cost]:
    """Return the cost of every variant, with the steps that the budget gives it."""
    kind, amount = plan.budget
    costs = {}
    for name, (count, flops, seconds) in measured.items():
        steps = amount
        if kind == "tokens":
            steps = amount / _count_tokens_a_step(recipes[name], material[name])
        elif kind == "seconds":
            steps = amount / seconds
        if plan.match == "compute":
            steps *= measured[plan.baseline][1] / flops
        costs[name] = Cost(count, max(1, round(steps)), flops, seconds, matched[name])
    return costs


def _count_tokens_a_step(recipe: Recipe, material: TrainingData) -> float:
    """Return the target tokens of a step, from a sample of batches."""
    shown = list(islice(material.batches(recipe), 20))
    labels = [material.collate([material.train[i] for i in indices])["labels"] for indices in shown]
    return sum(int(part.ne(IGNORED_LABEL).sum()) for part in labels) / len(shown) * recipe.training.accumulate
