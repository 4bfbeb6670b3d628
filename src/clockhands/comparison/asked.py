"""What is asked of a plan, read and checked: variants, seeds, budget, metric. Faults are added to a list."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clockhands.data import CORPORA
from clockhands.errors import ConfigError, UsageError, shown
from clockhands.findings import Number
from clockhands.options import LARGEST_SEED, fits
from clockhands.runs.recipe import Recipe, vary

METRICS = {"exact": "exact match %", "chrf": "chrF of a sentence", "loss": "loss, nats per token"}
MATCHES = ("width", "parameters", "compute")
BUDGETS = ("steps", "tokens", "seconds")
MOST_VARIANTS = MOST_SEEDS = 1000
INSIDE = ("loudness", "directions", "recovery", "louder", "shift", "survival")


@dataclass(frozen=True)
class Variant:
    """A name, and the dotted fields of the recipe that it changes."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def grid_of(grid: Mapping[str, Sequence[Any]], recipe: Recipe, faults: list[str]) -> list[Variant]:
    wrong = [key for key, values in grid.items() if isinstance(values, str) or not isinstance(values, Sequence)]
    faults += [f"{key} in the grid is {grid[key]!r}, but must be a list of values" for key in wrong]
    empty = [key for key, values in grid.items() if key not in wrong and not values]
    faults += [f"the grid is empty: {key} has no values" for key in empty]
    count = math.prod(len(values) for key, values in grid.items() if key not in wrong)
    if count > MOST_VARIANTS:
        faults.append(f"the grid has {count:,} variants; at most {MOST_VARIANTS:,} can be compared")
    if not grid or wrong or empty or count > MOST_VARIANTS:
        return []
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    single = len(grid) == 1
    return [
        Variant(
            ", ".join(
                _word(value) if single else f"{key.rpartition('.')[2]}={_word(value)}" for key, value in c.items()
            ),
            c,
        )
        for c in combinations
    ]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def name_faults(chosen: Sequence[Variant], faults: list[str]) -> None:
    names = [variant.name for variant in chosen]
    faults += [f"two variants are named {name!r}" for name in dict.fromkeys(names) if names.count(name) > 1]
    if len(chosen) == 1:
        faults.append(f"there is one variant, {names[0]!r}; a comparison needs another")


def seeds_of(seeds: int | Sequence[int], faults: list[str]) -> tuple[int, ...]:
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            faults.append(f"seeds is {shown(seeds)}; one at least (and 5 for a verdict)")
        if seeds > MOST_SEEDS:
            faults.append(f"seeds is {shown(seeds)}; at most {MOST_SEEDS:,} are trained")
        return tuple(range(1, min(seeds, MOST_SEEDS) + 1))
    numbers = list(seeds) if isinstance(seeds, (list, tuple)) else []
    right = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= LARGEST_SEED]
    if not numbers or len(right) < len(numbers) or len(set(right)) < len(numbers):
        faults.append(
            f"seeds is {shown(seeds)}, but must be a count or a list of different whole numbers (0 to {LARGEST_SEED})"
        )
        return ()
    return tuple(right)


def budget_of(budget: Mapping[str, Number] | None, recipe: Recipe, faults: list[str]) -> tuple[str, Number]:
    if budget is None:
        steps = recipe.training.max_steps
        if steps is None:
            faults.append("the recipe counts epochs; say what all variants get: a budget of steps, tokens or seconds")
        return "steps", steps or 0
    if not isinstance(budget, Mapping) or len(budget) != 1 or next(iter(budget)) not in BUDGETS:
        faults.append(f"budget is {shown(budget)}, but must be one of steps, tokens, seconds with its amount")
        return "steps", 0
    kind, amount = next(iter(budget.items()))
    if not fits(amount, float) or amount <= 0:
        faults.append(f"the budget of {kind} is {shown(amount)}, but must be a finite number above 0")
        return kind, 0
    return kind, amount


def usual_metric(recipe: Recipe) -> str:
    if recipe.task == "language modelling":
        return "loss"
    return "exact" if CORPORA[recipe.corpus].one_answer else "chrf"


def kind_faults(recipe: Recipe, metric: str, inside: Sequence[str] = ()) -> list[str]:
    if recipe.model.kind == "encoder":
        return ["a masked language model writes nothing that could be scored; compare translators or language models"]
    if recipe.model.kind == "decoder" and metric in ("exact", "chrf"):
        return [f"metric is {metric!r}, which scores translations; a language model has 'loss'"]
    if recipe.model.kind == "decoder" and inside:
        return [f"inside measures {', '.join(inside)} on what a translator reads; a language model reads no source"]
    return []


def variant_faults(base: Recipe, variant: Variant) -> list[str]:
    fixed = [key for key in variant.changes if key in ("training.seed", "training.max_steps", "training.epochs")]
    found = [f"variant {variant.name!r} sets {key}, which the plan sets (seeds, budget)" for key in fixed]
    try:
        vary(base, variant.changes)
    except UsageError as fault:
        reasons = fault.faults if isinstance(fault, ConfigError) else (str(fault),)
        found += [f"variant {variant.name!r}: {reason}" for reason in reasons]
    return found
