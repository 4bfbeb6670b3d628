"""Make the plan of a study in one of its sizes.

A study's file may change a size, for what is meant relative to the width::

    [size.gpu]
    variants = ["sum", "concatenate 48 + 16"]         # optional: only these
    budget = { steps = 600 }                          # optional: in place of the size's multiple of the plan's
    set = { "training.precision" = "bf16" }           # optional: settings that all variants share, over the size's own
    seeds = 5                                         # optional: in place of the plan's
    redraw_text = true                                # optional: each seed trains on a draw of the text of its own
    inside = ["survival"]                             # optional: what is measured inside, in place of the size's
    despite = { baseline = "..." }                    # optional: why the task is used here, in place of the plan's
    [[size.gpu.change]]
    variant = "concatenate 48 + 16"                   # one of the plan's
    name = "concatenate 192 + 64"                     # optional: what it is called at this size
    set = { "position.width" = 64 }                   # laid over its own settings
    [[size.gpu.variant]]                              # one that the plan does not have
    name = "sum, positions twice as loud"
    set = { "position.amplitude" = 2.0 }
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clockhands.comparison.plan import FIXED, TEXT_SEED, expand_grid
from clockhands.errors import ConfigError, describe_unknown
from clockhands.findings.finding import join_words
from clockhands.reading import read_toml
from clockhands.runs.recipe import Recipe, load_recipe, vary_recipe

KEYS = ("variants", "budget", "seeds", "set", "redraw_text", "inside", "despite", "change", "variant")


def list_sizes(recipe: str, declared: Collection[str]) -> list[str]:
    """Return the sizes that a study of a recipe has; ``declared``: those for which its file has a table."""
    return [
        name
        for name, size in SIZES.items()
        if (name in declared or not size.declared) and (not size.recipe or size.replaces == recipe)
    ]


def scale_plan(plan: PlanTables, sizes: PlanTables, name: str, folder: Path, source: str) -> dict[str, Any]:
    """Return the tables of a plan in a size of `SIZES`; ``sizes``: what the study's file says of its sizes, by name.

    Raises ConfigError for an unknown key, a variant that the plan does not have, a size of another task for a study
    whose variants cannot be trained on it, or a size that the study has to have a table for and has none.
    """
    size = SIZES[name]
    own = sizes.get(name, sizes.get(size.own))
    if size.declared and own is None:
        fault = f"the size {name} is for studies that say what it changes, under [size.{name}]; this one has the sizes"
        raise ConfigError([f"{fault} {join_words(list_sizes(plan['recipe'], sizes))}"], source)
    own = own or {}
    variants = [dict(variant) for variant in plan.get("variant", ())]
    # What the plan makes by a grid is named one by one, to be chosen from.
    if own.keys() & {"variants", "change", "variant"}:
        faults: list[str] = []
        expanded = expand_grid(plan.get("vary", {}), faults)
        grid = [{"name": variant.name, "set": variant.overrides} for variant in expanded]
        if faults:
            raise ConfigError(faults, source)
        plan, variants = {key: value for key, value in plan.items() if key != "vary"}, [*grid, *variants]
    _check(own, [variant["name"] for variant in variants], source)
    budget = {kind: size.times * amount for kind, amount in plan["budget"].items()}
    scaled = {**plan, **size.plan, "budget": own.get("budget", budget)}
    scaled |= {key: own[key] for key in ("seeds", "redraw_text", "inside", "despite") if key in own}
    if size.recipe:
        if plan["recipe"] != size.replaces:
            fault = f"the size {name} is for studies of {size.replaces}, and this one is of {plan['recipe']}"
            raise ConfigError([f"{fault}; take another size"], source)
        scaled["recipe"] = size.recipe
    if size.shape or "set" in own:
        recipe = load_recipe(folder / scaled["recipe"])
        scaled["recipe"] = vary_recipe(recipe, {**_fit_shape(size.shape, recipe, variants), **own.get("set", {})})
    kept = own.get("variants") or [variant["name"] for variant in variants]
    changes = {change["variant"]: change for change in own.get("change", ())}
    if variants:
        scaled["variant"] = []
        for variant in variants:
            if variant["name"] in kept:
                change = changes.get(variant["name"], {})
                settings = {**variant.get("set", {}), **change.get("set", {})}
                scaled["variant"].append({"name": change.get("name", variant["name"]), "set": settings})
        scaled["variant"] += [dict(variant) for variant in own.get("variant", ())]
    return scaled


def _fit_shape(shape: PlanTables, recipe: Recipe, variants: Sequence[PlanTables]) -> dict[str, Any]:
    """Return the settings of a size for a recipe: a decoder has no encoder, and a layout that repeats must fit.

    Where a variant says what each layer has, there are as many layers as planned, or twice as many, and so on.
    """
    decoder = recipe.model.architecture == "decoder"
    fitted = {key: value for key, value in shape.items() if not (decoder and key == "model.encoder_layers")}
    if any("position.layers" in variant.get("set", {}) for variant in variants) and "model.decoder_layers" in fitted:
        planned = recipe.model.decoder_layers
        fitted["model.decoder_layers"] = planned * -(-fitted["model.decoder_layers"] // planned)
    return fitted


def _check(own: PlanTables, names: Sequence[str], source: str) -> None:
    faults = [describe_unknown("key", key, KEYS) for key in own if key not in KEYS]
    settings = own.get("set", {})
    if not isinstance(settings, Mapping):
        faults.append(f"set is {settings!r}, but must be a table of settings")
    elif fixed := [key for key in settings if key in (*FIXED, TEXT_SEED)]:
        faults.append(f"set has {', '.join(fixed)}, which the plan sets itself (seeds, budget, redraw_text)")
    named = [*own.get("variants", ()), *(change.get("variant", "") for change in own.get("change", ()))]
    faults += [describe_unknown("variant", name, names) for name in named if name not in names]
    if faults:
        raise ConfigError(faults, source)


PlanTables = Mapping[str, Any]


@dataclass(frozen=True)
class Size:
    """A size in which a study can be run; ``sizes.toml`` says what its fields mean."""

    says: str
    times: int = 1
    shape: PlanTables = field(default_factory=dict)
    recipe: str = ""
    replaces: str = "recipes/numbers.toml"
    plan: PlanTables = field(default_factory=dict)
    own: str = ""
    declared: bool = False


_TABLES = read_toml(Path(__file__).parent / "sizes.toml", "the sizes of studies")
SIZES = {
    name: Size(**{**size, **{kind: {**_TABLES[kind], "": {}}[size.get(kind, "")] for kind in ("shape", "plan")}})
    for name, size in _TABLES["size"].items()
}
"""What ``clockhands study NAME --scale`` takes: as planned, longer, on another task, or with larger models."""
