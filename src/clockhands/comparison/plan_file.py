"""Plans as TOML files, and grids from the command line.

As a file::

    recipe = "numbers.toml"          # or the tables of a recipe, in [recipe.data], [recipe.model], ...
    seeds = 5                        # a count, or a list
    baseline = "sinusoidal"          # default: the first variant
    metric = "exact"                 # exact, bleu, chrf or loss
    match = "width"                  # width, parameters or compute
    margin = 1.0                     # smaller differences count as equal (default: 1 point, 0.3 of BLEU or chrF, ...)
    learned = 20.0                   # the score from which a seed has learned (default: a share of the best seed's)
    despite = {ceiling = "..."}      # why the task is used all the same (or baseline, floor)
    redraw_text = true               # train each seed on another draw of the text (default: all on the same)
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

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clockhands.comparison.plan import Plan, Variant, make_plan
from clockhands.errors import ConfigError, describe_unknown, show_value
from clockhands.files import find_recipe
from clockhands.options import check_value, fits, options_of, parse, split_outside
from clockhands.reading import read_toml
from clockhands.runs.recipe import Recipe
from clockhands.runs.recipe.tables import find_keys

LOOSE = {"inside": Sequence[str], **dict.fromkeys(("vary", "budget", "despite"), Mapping[str, Any])}
"""Keys of which more is checked than their type, with messages of their own."""
KINDS: dict[str, Any] = {
    name: LOOSE.get(name, option.type)
    for name, option in options_of(make_plan).items()
    if name not in ("variants", "source")
}
"""What the keys of a plan's file hold, but for its recipe and its variants: what ``make_plan`` can be told."""
KEYS = ("recipe", *KINDS, "variant")


def read_plan(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan in a file. ``overrides`` replace its keys (``seeds``, ``baseline``, ``match``, ``budget``, ...).

    Raises DataError for a file that cannot be read, ConfigError with every fault of its content.
    """
    path = find_recipe(path)
    return make_plan_from_tables({**read_toml(path, "the plan"), **(overrides or {})}, path.parent, str(path))


def make_plan_from_tables(tables: Mapping[str, Any], folder: Path, source: str) -> Plan:
    """Return the plan that the tables of a file mean; a recipe's path is relative to ``folder``. Raises ConfigError."""
    named = tables.get("variant", ())
    faults = [*_check_keys(tables), *_check_variants(named)]
    if faults:
        raise ConfigError(faults, source)
    recipe = tables["recipe"]
    rest = {key: tables[key] for key in KINDS if key in tables}
    return make_plan(
        folder / recipe if isinstance(recipe, str) else recipe,
        variants=[Variant(table["name"], table.get("set", {})) for table in named],
        source=source,
        **rest,
    )


def _check_keys(tables: Mapping[str, Any]) -> list[str]:
    """Return the faults of the keys of a plan's file, and of the values that they hold."""
    faults = [describe_unknown("key", key, KEYS) for key in tables if key not in KEYS]
    if not isinstance(tables.get("recipe", ""), (str, Mapping, Recipe)):
        faults.append(f"recipe is {show_value(tables['recipe'])}, but must be the path of a recipe, or its tables")
    if "recipe" not in tables:
        faults.append("recipe is missing: the path of a recipe, or its tables under [recipe.data] and so on")
    if not tables.get("vary") and not tables.get("variant"):
        faults.append("there is nothing to compare: give [vary] with a grid, or [[variant]] with name and set")
    faults += [fault for key, kind in KINDS.items() if key in tables for fault in check_value(key, tables[key], kind)]
    grid, budget = tables.get("vary", {}), tables.get("budget", {})
    faults += [
        f"{key} in the grid is {show_value(values)}, but must be a list of values"
        for key, values in (grid.items() if isinstance(grid, Mapping) else ())
        if not isinstance(values, (list, tuple))
    ]
    amounts = budget.items() if isinstance(budget, Mapping) else ()
    return [*faults, *(fault for key, amount in amounts for fault in check_value(f"budget.{key}", amount, float))]


def _check_variants(named: Any) -> list[str]:
    """Return a fault for every ``[[variant]]`` that is not a name with settings."""
    if not isinstance(named, (list, tuple)):
        return [f"variant is {show_value(named)}, but must be a list of tables: [[variant]] with name and set"]
    return [
        f"a [[variant]] is {show_value(table)}; it has a name, which is text, and set, which is a table"
        for table in named
        if not (
            isinstance(table, Mapping)
            and set(table) <= {"name", "set"}
            and fits(table.get("name"), str)
            and isinstance(table.get("set", {}), Mapping)
        )
    ]


def read_grid(written: Sequence[str], recipe: Recipe) -> dict[str, list[Any]]:
    """Return ``position.scheme=rope,alibi`` as a grid. Raises ConfigError for what is not of this form."""
    faults = [f"{text!r} is not of the form KEY=VALUE,VALUE" for text in written if "=" not in text]
    if faults:
        raise ConfigError(faults, "--vary")
    grid = {}
    for text in written:
        key, _, values = text.partition("=")
        table, _, name = key.strip().rpartition(".")
        known = find_keys(recipe.tables, table) if table.split(".")[0] in recipe.tables else {}
        kind = known[name].type if name in known else Any
        grid[key.strip()] = [parse(value.strip(), kind) for value in split_outside(values, ",") if value.strip()]
    return grid
