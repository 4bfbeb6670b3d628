"""The variants of a comparison: a name each, and the settings of the recipe that it overrides; a grid of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clockhands.errors import ConfigError, UsageError
from clockhands.runs.recipe import Recipe, vary_recipe

MOST_VARIANTS = 1000
FIXED = ("training.seed", "training.max_steps", "training.epochs")
"""Settings that the plan makes itself, from its seeds and its budget."""
TEXT_SEED = "training.text_seed"
"""The setting that it makes too where each seed has a training text of its own."""


@dataclass(frozen=True)
class Variant:
    """A name, and the dotted keys of the recipe that it overrides, with their values."""

    name: str
    overrides: Mapping[str, Any] = field(default_factory=dict)


def expand_grid(grid: Mapping[str, Sequence[Any]], faults: list[str]) -> list[Variant]:
    """Return a variant for every combination of the grid's values. Faults are added to the list; then there is none."""
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
    return [Variant(_name(overrides), overrides) for overrides in combinations]


def _name(overrides: Mapping[str, Any]) -> str:
    """Return the value where there is one, else ``key=value`` for each; tables are left out of the keys."""
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in overrides.items()}
    if len(words) == 1:
        return next(iter(words.values()))
    return ", ".join(f"{key.rpartition('.')[2]}={word}" for key, word in words.items())


def check_names(variants: Sequence[Variant]) -> list[str]:
    """Return the faults of the names together: one that occurs twice, or a single variant."""
    names = [variant.name for variant in variants]
    faults = [f"two variants are named {name!r}" for name in dict.fromkeys(names) if names.count(name) > 1]
    if len(variants) == 1:
        faults.append(f"there is one variant, {names[0]!r}; a comparison needs another")
    return faults


def check_variant(recipe: Recipe, variant: Variant, *, redrawn: bool = False) -> list[str]:
    """Return the faults of a variant's overrides to the recipe, each with the variant's name.

    ``redrawn``: each seed has a training text of its own.
    """
    fixed = [key for key in variant.overrides if key in FIXED]
    faults = [f"variant {variant.name!r} sets {key}, which the plan sets (seeds, budget)" for key in fixed]
    if redrawn and TEXT_SEED in variant.overrides:
        faults.append(f"variant {variant.name!r} sets {TEXT_SEED}, which the plan sets from each seed (redraw_text)")
    try:
        vary_recipe(recipe, variant.overrides)
    except UsageError as fault:
        reasons = fault.faults if isinstance(fault, ConfigError) else (str(fault),)
        faults += [f"variant {variant.name!r}: {reason}" for reason in reasons]
    return faults
