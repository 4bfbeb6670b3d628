"""A plan: variants × seeds of one recipe, the budget that all get, and what is matched. It imports no torch.

As a file::

    recipe = "numbers.toml"          # or the tables of a recipe, in [recipe.data], [recipe.model], ...
    seeds = 5                        # a count, or a list
    baseline = "sinusoidal"          # default: the first variant
    metric = "exact"                 # exact, chrf or loss
    match = "width"                  # width, parameters or compute
    target = 0.1                     # the validation loss whose step and second are noted
    inside = ["loudness"]            # what is measured inside the model before and after training
    budget = {steps = 400}           # steps, tokens or seconds

    [vary]                           # a grid
    "position.scheme" = ["sinusoidal", "rope", "none"]

    [[variant]]                      # and variants with a name
    name = "no scale"
    set = {"model.token_scale" = "one"}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clockhands.comparison.asked import (
    INSIDE,
    MATCHES,
    METRICS,
    Variant,
    budget_of,
    grid_of,
    kind_faults,
    name_faults,
    seeds_of,
    usual_metric,
    variant_faults,
)
from clockhands.errors import ConfigError, shown, unknown
from clockhands.files import find_recipe, read_toml
from clockhands.findings import Number
from clockhands.options import check_value, fits, parse
from clockhands.runs.recipe import Recipe, combine, load, vary
from clockhands.runs.recipe.keys import keys_of

KEYS = (
    "title", "recipe", "seeds", "baseline", "metric", "match", "target", "inside", "budget", "vary", "variant",
)  # fmt: skip
KINDS: dict[str, Any] = {
    "title": str,
    "seeds": int | Sequence[int],
    "baseline": str | None,
    "metric": str | None,
    "match": str,
    "target": float | None,
    "inside": Sequence[str],
    "vary": Mapping[str, Any],
    "budget": Mapping[str, Any],
}
"""What the keys of a plan's file hold."""


@dataclass(frozen=True)
class Plan:
    """What is trained. ``of`` checks it whole; ``recipe_of`` gives one trial's recipe before matching."""

    recipe: Recipe
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    baseline: str
    metric: str
    match: str = "width"
    budget: tuple[str, Number] = ("steps", 400)
    target: Number | None = None
    inside: tuple[str, ...] = ()
    title: str = "A comparison"

    @property
    def higher_is_better(self) -> bool:
        """Of the metric."""
        return self.metric != "loss"

    @property
    def digits(self) -> int:
        """Decimals that the metric is written with."""
        return 3 if self.metric == "loss" else 1

    @property
    def trials(self) -> list[tuple[str, int]]:
        """Variant and seed of every trial: all variants of a seed before the next, so that a stop leaves pairs."""
        return [(variant.name, seed) for seed in self.seeds for variant in self.variants]

    @property
    def fingerprint(self) -> str:
        """Changes with anything but the seeds and the title: a folder of results belongs to one of these."""
        asked = {key: value for key, value in self.to_dict().items() if key not in ("seeds", "title")}
        return hashlib.blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=8).hexdigest()

    def variant(self, name: str) -> Variant:
        """By name."""
        return next(variant for variant in self.variants if variant.name == name)

    def recipe_of(self, name: str, seed: int) -> Recipe:
        """The recipe of a trial."""
        return vary(self.recipe, {**self.variant(name).changes, "training.seed": seed})

    def to_dict(self) -> dict[str, Any]:
        """Plain data that ``from_dict`` reads back."""
        return {
            "title": self.title,
            "recipe": json.loads(json.dumps(self.recipe.tables)),
            "variants": [[variant.name, dict(variant.changes)] for variant in self.variants],
            "seeds": list(self.seeds),
            "baseline": self.baseline,
            "metric": self.metric,
            "match": self.match,
            "budget": list(self.budget),
            "target": self.target,
            "inside": list(self.inside),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Plan:
        """From what ``to_dict`` gave."""
        rest = {key: given[key] for key in ("title", "baseline", "metric", "match", "target")}
        return cls(
            recipe=Recipe.of(given["recipe"]),
            variants=tuple(Variant(name, changes) for name, changes in given["variants"]),
            seeds=tuple(given["seeds"]),
            budget=(given["budget"][0], given["budget"][1]),
            inside=tuple(given["inside"]),
            **rest,
        )


def plan_of(
    recipe: Recipe | str | Path | Mapping[str, Any],
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    variants: Sequence[Variant] = (),
    seeds: int | Sequence[int] = 5,
    baseline: str | None = None,
    metric: str | None = None,
    match: str = "width",
    budget: Mapping[str, Number] | None = None,
    target: Number | None = None,
    inside: Sequence[str] = (),
    title: str = "A comparison",
    source: str = "the plan",
) -> Plan:
    """A checked plan. ``vary`` is a grid: every combination is a variant; ``variants`` have names of their own.

    Raises ConfigError with every fault at once, those of each variant under its name.
    """
    faults = check_value("target", target, float | None)
    if faults:
        raise ConfigError(faults, source)
    base = _recipe(recipe)
    chosen = (*grid_of(vary or {}, base, faults), *variants)
    name_faults(chosen, faults)
    numbers = seeds_of(seeds, faults)
    kind, amount = budget_of(budget, base, faults)
    metric = metric or usual_metric(base)
    faults += [unknown("metric", metric, METRICS)] if metric not in METRICS else []
    faults += [unknown("match", match, MATCHES)] if match not in MATCHES else []
    faults += [unknown("measure", name, INSIDE) for name in inside if name not in INSIDE]
    faults += kind_faults(base, metric, inside)
    baseline = baseline or (chosen[0].name if chosen else "")
    if chosen and baseline not in [variant.name for variant in chosen]:
        faults.append(unknown("baseline", baseline, [variant.name for variant in chosen]))
    for variant in chosen:
        faults += variant_faults(base, variant)
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)), source)
    return Plan(base, chosen, numbers, baseline, metric, match, (kind, amount), target, tuple(inside), title)


def read_plan(path: str | Path, settings: Mapping[str, Any] | None = None) -> Plan:
    """A plan from a file. ``settings`` replace its keys (``seeds``, ``baseline``, ``match``, ``budget``, ...).

    Raises DataError for a file that cannot be read, ConfigError with every fault of its content.
    """
    path = find_recipe(path)
    return plan_from_tables({**read_toml(path, "the plan"), **(settings or {})}, path.parent, str(path))


def plan_from_tables(given: Mapping[str, Any], folder: Path, source: str) -> Plan:
    """A plan from what its file says; a recipe's path is relative to ``folder``. Raises as ``read_plan``."""
    faults = [unknown("key", key, KEYS) for key in given if key not in KEYS]
    if not isinstance(given.get("recipe", ""), (str, Mapping, Recipe)):
        faults.append(f"recipe is {shown(given['recipe'])}, but must be the path of a recipe, or its tables")
    if "recipe" not in given:
        faults.append("recipe is missing: the path of a recipe, or its tables under [recipe.data] and so on")
    if not given.get("vary") and not given.get("variant"):
        faults.append("there is nothing to compare: give [vary] with a grid, or [[variant]] with name and set")
    faults += [fault for key, kind in KINDS.items() if key in given for fault in check_value(key, given[key], kind)]
    grid, budget = given.get("vary", {}), given.get("budget", {})
    amounts = budget.items() if isinstance(budget, Mapping) else ()
    faults += [fault for key, amount in amounts for fault in check_value(f"budget.{key}", amount, float)]
    faults += [
        f"{key} in the grid is {shown(values)}, but must be a list of values"
        for key, values in (grid.items() if isinstance(grid, Mapping) else ())
        if not isinstance(values, (list, tuple))
    ]
    named = given.get("variant", ())
    if not isinstance(named, (list, tuple)):
        faults.append(f"variant is {shown(named)}, but must be a list of tables: [[variant]] with name and set")
        named = ()
    faults += [
        f"a [[variant]] is {shown(table)}; it has a name, which is text, and set, which is a table"
        for table in named
        if not _is_variant(table)
    ]
    if faults:
        raise ConfigError(faults, source)
    recipe = given["recipe"]
    rest = {key: given[key] for key in KEYS if key in given and key not in ("recipe", "variant")}
    return plan_of(
        folder / recipe if isinstance(recipe, str) else recipe,
        variants=[Variant(table["name"], table.get("set", {})) for table in named],
        source=source,
        **rest,
    )


def read_grid(written: Sequence[str], recipe: Recipe) -> dict[str, list[Any]]:
    """``position.scheme=rope,alibi`` as a grid. Raises ConfigError for what is not of this form."""
    faults = [f"{text!r} is not of the form KEY=VALUE,VALUE" for text in written if "=" not in text]
    if faults:
        raise ConfigError(faults, "--vary")
    grid = {}
    for text in written:
        key, _, values = text.partition("=")
        table, _, name = key.strip().rpartition(".")
        known = keys_of(recipe.tables, table) if table.split(".")[0] in recipe.tables else {}
        kind = known[name].type if name in known else Any
        grid[key.strip()] = [parse(value.strip(), kind) for value in values.split(",") if value.strip()]
    return grid


def _recipe(recipe: Recipe | str | Path | Mapping[str, Any]) -> Recipe:
    if isinstance(recipe, Recipe):
        return recipe
    return load(recipe) if isinstance(recipe, (str, Path)) else combine(dict(recipe), {})


def _is_variant(table: Any) -> bool:
    if not isinstance(table, Mapping) or not set(table) <= {"name", "set"}:
        return False
    return fits(table.get("name"), str) and isinstance(table.get("set", {}), Mapping)
