"""The sizes in which a study can be run: as planned, longer, on another task, or with wider and deeper models.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clockhands.comparison.variants import FIXED, TEXT_SEED, expand_grid
from clockhands.errors import ConfigError, describe_unknown
from clockhands.runs.recipe import Recipe, load_recipe, vary_recipe

Tables = Mapping[str, Any]


NUMBERS, ROLES, PYTHON = "recipes/numbers.toml", "recipes/roles.toml", "recipes/python.toml"
"""Recipes of the three tasks. The variants of a study of pairs in one layer a side can be trained on the others."""


@dataclass(frozen=True)
class Size:
    """``says``: what it is; ``times``: of the plan's budget; ``shape``: settings that all variants share.

    ``recipe``: of the task that takes the place of ``replaces``, the study's. ``plan``: what the plan says of it, its
    metric. ``own``: the size whose changes in a study's file hold here too, where the file says nothing of this one.
    ``declared``: whether a study needs a table for this size.
    """

    says: str
    times: int = 1
    shape: Tables = field(default_factory=dict)
    recipe: str = ""
    replaces: str = NUMBERS
    plan: Tables = field(default_factory=dict)
    own: str = ""
    declared: bool = False


def _make_wide_shape(width: int, layers: int, rate: float, warmup: int) -> dict[str, Any]:
    return {
        "model.d_model": width, "model.num_heads": 8, "model.d_ff": 4 * width, "model.encoder_layers": layers,
        "model.decoder_layers": layers, "training.learning_rate": rate, "training.warmup_steps": warmup,
        "training.device": "auto",
    }  # fmt: skip


TWICE = {"model.d_model": 128, "model.num_heads": 4, "model.d_ff": 512, "training.learning_rate": 3e-3}
WIDE = {"model.d_model": 256, "model.num_heads": 8, "model.d_ff": 1024, "training.learning_rate": 2e-3}
WIDER = {"model.d_model": 512, "model.num_heads": 8, "model.d_ff": 2048, "training.learning_rate": 1e-3}

SIZES = {
    "cpu": Size("as planned, for one processor core"),
    "long": Size("as planned, with four times the budget, which tells slow from impossible", 4),
    "longest": Size("as planned, with ten times the budget: minutes a trial on one core", 10, declared=True),
    "rates": Size("as planned, with other learning rates, which a study's table names", declared=True),
    "bases": Size(
        "with other bases of the rotation, which a study's table names: half a minute a trial on one core",
        declared=True,
    ),
    "bases-longer": Size(
        "with other bases of the rotation, trained on longer texts, which a study's table sets: a minute a trial on "
        "one core",
        declared=True,
    ),
    "roles": Size(
        "on another task, English to Esperanto with clauses, with twice the budget: a minute a trial on one core",
        2,
        recipe=ROLES,
    ),
    "numbers": Size(
        "on another task, German number words to English, with a training text of its own for each seed: seconds a "
        "trial on one core",
        recipe=NUMBERS,
        replaces=ROLES,
        plan={"redraw_text": True},
        declared=True,
    ),
    "stdlib": Size(
        "on another task, the next character of Python's standard library, with twice the budget and a training text "
        "of its own for each seed: seconds a trial on one core",
        2,
        recipe=PYTHON,
        plan={
            "redraw_text": True,
            "metric": "loss",
            "margin": 0.03,
            "target": 2.0,
            "inside": (),
            "despite": {
                "ceiling": "The bag of the characters before it hardly occurs twice in a text: of a text the ceiling "
                "says nothing."
            },
        },
        declared=True,
    ),
    "twice": Size(
        "width 128, else as planned unless the study's table for this size says more: half a minute a trial or more on "
        "one core",
        shape=TWICE,
        declared=True,
    ),
    "twice-long": Size(
        "width 128 and a longer training, which the study's table sets: minutes a trial on one core",
        shape=TWICE,
        declared=True,
    ),
    "twice-more": Size(
        "width 128, with more seeds of the variants that the study's table names: minutes a trial on one core",
        shape=TWICE,
        declared=True,
    ),
    "post": Size(
        "post-norm in place of pre-norm, else as planned: seconds a trial on one core",
        shape={"model.norm": "post"},
        declared=True,
    ),
    "scores": Size(
        "as planned, with other factors of the scores of attention and a training text of its own for each seed: "
        "seconds a trial on one core",
        plan={"redraw_text": True, "inside": ("loudness", "terms")},
        declared=True,
    ),
    "finer": Size(
        "as planned, with ten seeds, a training text of its own for each, 1,000 test items and a margin of one point: "
        "half a minute a trial on one core",
        shape={"data.test": 1000},
        plan={
            "seeds": 10,
            "redraw_text": True,
            "margin": 1.0,
            "inside": (),
            "despite": {
                "baseline": "The question is whether two good models differ by a point; the intervals are exact near "
                "100 %."
            },
        },
        declared=True,
    ),
    "wide": Size(
        "width 256, else as planned: minutes a trial on one core",
        shape=WIDE,
        own="gpu",
    ),
    "wide-long": Size("width 256 and four times the budget: minutes a trial on one core", 4, shape=WIDE, declared=True),
    "wider": Size("width 512, else as planned: minutes a trial on one core", shape=WIDER, declared=True),
    "gpu": Size(
        "width 256 and 3 layers a side unless a variant sets its own, three times the budget: for one GPU",
        3,
        _make_wide_shape(256, 3, 1e-3, 100),
    ),
    "paper": Size(
        "width 512 and 6 layers a side unless a variant sets its own, ten times the budget: for several GPUs and Ray",
        10,
        _make_wide_shape(512, 6, 5e-4, 200),
    ),
}
"""What ``clockhands study NAME --scale`` takes."""
KEYS = ("variants", "budget", "seeds", "set", "redraw_text", "inside", "despite", "change", "variant")


def scale_plan(plan: Tables, own: Tables | None, name: str, folder: Path, source: str) -> dict[str, Any]:
    """Return the tables of a plan in a size of `SIZES`; ``own`` is what the study's file says of that size;
    None where it says nothing.

    Raises ConfigError for an unknown key, a variant that the plan does not have, a size of another task for a study
    whose variants cannot be trained on it, or a size that the study has to have a table for and has none.
    """
    size = SIZES[name]
    if size.declared and own is None:
        raise ConfigError([f"the size {name} is for studies that say what it changes, under [size.{name}]"], source)
    own = own or {}
    variants = [dict(variant) for variant in plan.get("variant", ())]
    # What the plan makes by a grid is named one by one, to be chosen from.
    if own.keys() & {"variants", "change", "variant"}:
        faults: list[str] = []
        grid = [
            {"name": variant.name, "set": variant.overrides} for variant in expand_grid(plan.get("vary", {}), faults)
        ]
        if faults:
            raise ConfigError(faults, source)
        plan, variants = {key: value for key, value in plan.items() if key != "vary"}, [*grid, *variants]
    _check(own, [variant["name"] for variant in variants], source)
    scaled = {
        **plan,
        **size.plan,
        "budget": own.get("budget", {kind: size.times * n for kind, n in plan["budget"].items()}),
    }
    scaled |= {key: own[key] for key in ("seeds", "redraw_text", "inside", "despite") if key in own}
    if size.recipe:
        scaled["recipe"] = _find_other_task(plan["recipe"], size, name, source)
    if size.shape or "set" in own:
        recipe = load_recipe(folder / scaled["recipe"])
        scaled["recipe"] = vary_recipe(recipe, {**_fit_shape(size.shape, recipe, variants), **own.get("set", {})})
    kept = own.get("variants") or [variant["name"] for variant in variants]
    changes = {change["variant"]: change for change in own.get("change", ())}
    if variants:
        scaled["variant"] = [
            _change(variant, changes.get(variant["name"], {})) for variant in variants if variant["name"] in kept
        ] + [dict(variant) for variant in own.get("variant", ())]
    return scaled


def _fit_shape(shape: Tables, recipe: Recipe, variants: Sequence[Tables]) -> dict[str, Any]:
    """Return the settings of a size for a recipe: a decoder has no encoder, and a layout that repeats must fit.

    Where a variant says what each layer has, there are as many layers as planned, or twice as many, and so on.
    """
    decoder = recipe.model.architecture == "decoder"
    fitted = {key: value for key, value in shape.items() if not (decoder and key == "model.encoder_layers")}
    if any("position.layers" in variant.get("set", {}) for variant in variants) and "model.decoder_layers" in fitted:
        planned = recipe.model.decoder_layers
        fitted["model.decoder_layers"] = planned * -(-fitted["model.decoder_layers"] // planned)
    return fitted


def _find_other_task(planned: str, size: Size, name: str, source: str) -> str:
    """Return the recipe of the other task. Raises ConfigError where a study is not of the task that it replaces."""
    if planned != size.replaces:
        raise ConfigError(
            [f"the size {name} is for studies of {size.replaces}, and this one is of {planned}; take another size"],
            source,
        )
    return size.recipe


def _change(variant: Tables, change: Tables) -> dict[str, Any]:
    return {
        "name": change.get("name", variant["name"]),
        "set": {**variant.get("set", {}), **change.get("set", {})},
    }


def _check(own: Tables, names: Sequence[str], source: str) -> None:
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
