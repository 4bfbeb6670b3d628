"""What is trained and how it is judged: read from a TOML file or arguments, and checked.

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

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clockhands.comparison.trial import validate
from clockhands.data import CORPORA
from clockhands.errors import ConfigError, UsageError, describe_unknown, show_value
from clockhands.files import find_recipe
from clockhands.findings import Number
from clockhands.model.position_config import SIDES
from clockhands.options import LARGEST_SEED, check_value, fits, options_of, parse, split_outside
from clockhands.reading import read_toml
from clockhands.runs.recipe import Recipe, load_recipe, make_recipe, vary_recipe
from clockhands.runs.recipe.tables import find_keys

METRICS = {"exact": "exact match %", "bleu": "BLEU", "chrf": "chrF of a sentence", "loss": "loss, nats per token"}
"""What variants are judged by: the name in a plan, and on pages."""
MARGINS = {"exact": 1.0, "bleu": 0.3, "chrf": 0.3, "loss": 0.01}
"""Smaller differences count as equal, unless the plan sets another margin: in points, or nats per token."""
MATCHES = ("width", "parameters", "compute")
"""What all variants can have alike besides their budget."""
BUDGETS = ("steps", "tokens", "seconds")
"""What the training of every variant can be limited by."""
MOST_SEEDS = 1000
"""The most seeds of a plan."""
MEASURES = (
    "loudness", "channels", "participation", "directions", "recovery", "louder", "shift", "survival", "terms", "mixing",
)  # fmt: skip
"""What can be measured inside the models: names in ``inside = [...]`` of a plan."""


def _read_seeds(seeds: int | Sequence[int], faults: list[str]) -> tuple[int, ...]:
    """Return the seeds that a count (1 to it) or a list means. Faults are added to the list."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= MOST_SEEDS:
            faults.append(f"seeds is {show_value(seeds)}; 1 to {MOST_SEEDS:,} are trained (and 5 give a verdict)")
        return tuple(range(1, min(seeds, MOST_SEEDS) + 1))
    numbers = tuple(seeds) if isinstance(seeds, (list, tuple)) else ()
    right = {n for n in numbers if fits(n, int) and 0 <= n <= LARGEST_SEED}
    if numbers and len(right) == len(numbers):
        return numbers
    wanted = f"a count or a list of different whole numbers (0 to {LARGEST_SEED})"
    faults.append(f"seeds is {show_value(seeds)}, but must be {wanted}")
    return ()


def _read_budget(budget: Mapping[str, Number] | None, recipe: Recipe, faults: list[str]) -> tuple[str, Number]:
    """Return kind and amount of the budget, by default the recipe's steps. Faults are added to the list."""
    if budget is None:
        steps = recipe.training.max_steps
        if steps is None:
            faults.append("the recipe counts epochs; say what all variants get: a budget of steps, tokens or seconds")
        return "steps", steps or 0
    if not isinstance(budget, Mapping) or len(budget) != 1 or next(iter(budget)) not in BUDGETS:
        faults.append(f"budget is {show_value(budget)}, but must be one of steps, tokens, seconds with its amount")
        return "steps", 0
    kind, amount = next(iter(budget.items()))
    if not fits(amount, float) or amount <= 0:
        faults.append(f"the budget of {kind} is {show_value(amount)}, but must be a finite number above 0")
        return kind, 0
    return kind, amount


def choose_metric(recipe: Recipe) -> str:
    """Return the metric of the recipe's task."""
    if recipe.task == "language modelling":
        return "loss"
    return "exact" if CORPORA[recipe.corpus].one_answer else "chrf"


EXCEPTIONS = {
    "ceiling": "much of the task can be done without order",
    "baseline": "the baseline gets nearly everything right",
    "floor": "the baseline knows its text too little to be judged on longer text",
}
"""What can speak against a task, and against its use in a study."""


def format_margin(margin: float, unit: str) -> str:
    """Return a margin with its unit, which is in the singular after 1.

    >>> format_margin(1.0, "points of BLEU")
    '1 point of BLEU'
    """
    return f"{margin:g} {unit.replace('points', 'point').replace('nats', 'nat') if margin == 1 else unit}"


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
    """Return a variant for every combination of the grid's values. Faults are added to the list; then there is none.

    A variant is named by its value, or by ``key=value`` of each where the grid has several keys.
    """
    wrong = [key for key, values in grid.items() if isinstance(values, str) or not isinstance(values, Sequence)]
    faults += [f"{key} in the grid is {show_value(grid[key])}, but must be a list of values" for key in wrong]
    empty = [key for key, values in grid.items() if key not in wrong and not values]
    faults += [f"the grid is empty: {key} has no values" for key in empty]
    count = math.prod(len(values) for key, values in grid.items() if key not in wrong)
    if count > MOST_VARIANTS:
        faults.append(f"the grid has {count:,} variants; at most {MOST_VARIANTS:,} can be compared")
    if not grid or wrong or empty or count > MOST_VARIANTS:
        return []
    variants = []
    for values in itertools.product(*grid.values()):
        words = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
        if len(grid) > 1:
            words = [f"{key.rpartition('.')[2]}={word}" for key, word in zip(grid, words, strict=True)]
        variants.append(Variant(", ".join(words), dict(zip(grid, values, strict=True))))
    return variants


def _check_variants(recipe: Recipe, variants: Sequence[Variant], redrawn: bool) -> list[str]:
    """Return the faults of the variants' names, and of the overrides of each to the recipe.

    ``redrawn``: each seed has a training text of its own.
    """
    names = [variant.name for variant in variants]
    faults = [f"two variants are named {name!r}" for name in dict.fromkeys(names) if names.count(name) > 1]
    if len(variants) == 1:
        faults.append(f"there is one variant, {names[0]!r}; a comparison needs another")
    for name, overrides in ((variant.name, variant.overrides) for variant in variants):
        fixed = [key for key in overrides if key in FIXED]
        faults += [f"variant {name!r} sets {key}, which the plan sets (seeds, budget)" for key in fixed]
        if redrawn and TEXT_SEED in overrides:
            faults.append(f"variant {name!r} sets {TEXT_SEED}, which the plan sets from each seed (redraw_text)")
        try:
            vary_recipe(recipe, overrides)
        except UsageError as fault:
            faults += [f"variant {name!r}: {reason}" for reason in list_reasons(fault)]
    return faults


def list_reasons(fault: UsageError) -> Sequence[str]:
    """Return all that a fault says, one by one."""
    return fault.faults if isinstance(fault, ConfigError) else (str(fault),)


UNHASHED = ("seeds", "title", "despite")
"""Fields that may differ between the plans of one folder of results: the fingerprint leaves them out."""
UNITS = {"loss": "nats", "bleu": "points of BLEU", "chrf": "points of chrF"}
"""What differences of a metric are counted in; of a share in percent they are points."""


@dataclass(frozen=True)
class Plan:
    """What is trained and how it is judged. ``make_plan`` checks it; ``get_recipe`` gives a trial's recipe.

    ``margin``: differences below it count as equal; ``learned``: the score from which a seed has learned. None leaves
    either to the metric (``equal_within``; ``find_threshold`` of ``learning.py``). ``despite``: why a task is used
    although something speaks against it, by what that is (``EXCEPTIONS``); None where nothing does. ``files``: the
    SHA-256 of each file of the text, by its path below ``folder``, where the plan is bound to them; ``folder`` is where
    they lie here. ``redraw_text``: each seed trains on a draw of the training text of its own; None: on the same text.
    Written paths are relative to it, so that the same text in another folder is the same plan.
    """

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
    margin: Number | None = None
    learned: Number | None = None
    despite: Mapping[str, str] | None = None
    files: Mapping[str, str] | None = None
    redraw_text: bool | None = None
    folder: Path | None = field(default=None, compare=False)

    @property
    def equal_within(self) -> float:
        """The margin of equivalence: the plan's own, or that of the metric."""
        return float(MARGINS[self.metric] if self.margin is None else self.margin)

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value of the metric is better."""
        return self.metric != "loss"

    @property
    def digits(self) -> int:
        """Decimals that the metric is written with."""
        return 3 if self.metric == "loss" else 1

    @property
    def unit(self) -> str:
        """What differences of the metric are counted in."""
        return UNITS.get(self.metric, "points")

    @property
    def trials(self) -> list[tuple[str, int]]:
        """Variant and seed of every trial: all variants of a seed before the next, so that a stop leaves pairs."""
        return [(variant.name, seed) for seed in self.seeds for variant in self.variants]

    @property
    def fingerprint(self) -> str:
        """A hash of all but seeds, title and reasons: a folder of results belongs to the plans of one fingerprint."""
        content = {key: value for key, value in self.to_dict().items() if key not in UNHASHED}
        return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()

    def variant(self, name: str) -> Variant:
        """Return the variant of this name. Raises StopIteration if there is none."""
        return next(variant for variant in self.variants if variant.name == name)

    def get_recipe(self, name: str, seed: int) -> Recipe:
        """Return the recipe of a trial, before anything is matched.

        The trial's seed decides batches and initial weights, and the random numbers of a scheme that draws any (a table
        of random vectors, random phases), unless the recipe or the variant gives the scheme a seed of its own; with
        ``redraw_text`` the training text too.
        """
        overrides = self.variant(name).overrides
        text = {TEXT_SEED: seed} if self.redraw_text else {}
        recipe = vary_recipe(self.recipe, {**overrides, "training.seed": seed, **text})
        position = recipe.tables["position"]
        sides = {"position": position, **{f"position.{side}": position[side] for side in SIDES if side in position}}
        # A scheme's seed that the recipe leaves at 0, its default.
        drawn = [f"{table}.seed" for table, options in sides.items() if options.get("seed") == 0]
        draws = {key: seed for key in drawn if key not in overrides}
        return vary_recipe(recipe, draws) if draws else recipe

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``from_dict`` reads back."""
        plain = {name: getattr(self, name) for name in _Written.__dataclass_fields__}
        recipe = json.loads(json.dumps(self.recipe.tables))
        if self.folder is not None:  # the paths of its text are written relative to the folder, where they are below it
            start, data = f"{self.folder.absolute()}/", recipe["data"]
            recipe["data"] = {k: v.removeprefix(start) if isinstance(v, str) else v for k, v in data.items()}
        variants = [[variant.name, dict(variant.overrides)] for variant in self.variants]
        return {**plain, "recipe": recipe, "variants": variants}

    @classmethod
    def from_dict(cls, written: Any) -> Plan:
        """Return the plan that ``to_dict`` wrote. Raises ValueError or UsageError for what is none."""
        read = vars(validate(_Written, written))
        variants = tuple(Variant(name, overrides) for name, overrides in read["variants"])
        faults = _check_judging(read, variants)
        _read_seeds(read["seeds"], faults)
        if faults:
            raise ConfigError(faults, "the plan")
        return cls(**{**read, "recipe": Recipe.from_tables(read["recipe"]), "variants": variants})


@dataclass(frozen=True)
class _Written:
    """A plan as plain data."""

    title: str
    recipe: dict[str, dict[str, Any]]
    variants: list[tuple[str, dict[str, Any]]]
    seeds: tuple[int, ...]
    baseline: str
    metric: str
    match: str
    budget: tuple[str, int | float]
    target: int | float | None
    inside: tuple[str, ...]
    margin: int | float | None
    learned: int | float | None
    despite: dict[str, str] | None
    files: dict[str, str] | None
    redraw_text: bool | None


def make_plan(
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
    margin: Number | None = None,
    learned: Number | None = None,
    despite: Mapping[str, str] | None = None,
    redraw_text: bool | None = None,
    source: str = "the plan",
) -> Plan:
    """Make a plan and check it: ``vary`` is a grid, of which every combination is a variant; ``variants`` are named.

    The other arguments are the fields of ``Plan``; a number of ``seeds`` stands for so many, from 1 on; a ``metric``
    of None for that of the corpus. Raises ConfigError with every fault at once, those of each variant under its name.
    """
    faults = check_value("target", target, float | None) + check_value("redraw_text", redraw_text, bool | None)
    for name, reason in (despite or {}).items():
        if name not in EXCEPTIONS:
            faults.append(describe_unknown("exception in despite", name, EXCEPTIONS))
        elif not str(reason).strip():
            faults.append(f"despite.{name} is empty, but must say why, although {EXCEPTIONS[name]}")
    base = recipe
    if not isinstance(base, Recipe):
        base = load_recipe(base) if isinstance(base, (str, Path)) else make_recipe(dict(base), {})
    chosen = (*expand_grid(vary or {}, faults), *variants)
    numbers, limit = _read_seeds(seeds, faults), _read_budget(budget, base, faults)
    metric = metric or choose_metric(base)
    baseline = baseline or (chosen[0].name if chosen else "")
    judged = {"metric": metric, "match": match, "baseline": baseline, "margin": margin, "learned": learned}
    faults += _check_judging({**judged, "inside": inside}, chosen)
    if base.model.architecture == "encoder":
        faults.append("a masked language model writes nothing to score; compare translators or language models")
    elif base.model.architecture == "decoder" and metric != "loss":
        faults.append(f"metric is {metric!r}, which scores translations; a language model has 'loss'")
    faults += _check_variants(base, chosen, bool(redraw_text))
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)), source)
    return Plan(
        recipe=base, variants=chosen, seeds=numbers, baseline=baseline, metric=metric, match=match, budget=limit,
        target=target, inside=tuple(inside), title=title, margin=margin, learned=learned, despite=despite or None,
        redraw_text=redraw_text or None,
    )  # fmt: skip


def _check_judging(judged: Mapping[str, Any], variants: Sequence[Variant]) -> list[str]:
    """Return a fault for each unknown name by which variants are judged, and for a margin or a score that is none."""
    named = [variant.name for variant in variants]
    names = [("metric", judged["metric"], METRICS), ("match", judged["match"], MATCHES)]
    names += [("measure", name, MEASURES) for name in judged["inside"]]
    names += [("baseline", judged["baseline"], named)] if named else []
    faults = [describe_unknown(what, name, known) for what, name, known in names if name not in known]
    margin = judged["margin"]
    wrong = [fault for key in ("margin", "learned") for fault in check_value(key, judged[key], float | None)]
    if not wrong and margin is not None and margin <= 0:
        wrong.append(f"margin is {show_value(margin)}, but must be above 0: differences below it count as equal")
    return faults + wrong


LOOSE = {"inside": Sequence[str], **dict.fromkeys(("vary", "budget", "despite"), Mapping[str, Any])}
"""Keys of a file of which more is checked than their type, with messages of their own."""
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
    faults = [describe_unknown("key", key, KEYS) for key in tables if key not in KEYS]
    recipe, named = tables.get("recipe", ""), tables.get("variant", ())
    if not isinstance(recipe, (str, Mapping, Recipe)):
        faults.append(f"recipe is {show_value(recipe)}, but must be the path of a recipe, or its tables")
    if "recipe" not in tables:
        faults.append("recipe is missing: the path of a recipe, or its tables under [recipe.data] and so on")
    if not tables.get("vary") and not named:
        faults.append("there is nothing to compare: give [vary] with a grid, or [[variant]] with name and set")
    faults += [fault for key, kind in KINDS.items() if key in tables for fault in check_value(key, tables[key], kind)]
    if not isinstance(named, (list, tuple)):
        faults.append(f"variant is {show_value(named)}, but must be a list of tables: [[variant]] with name and set")
        named = ()
    for table in named:
        known = isinstance(table, Mapping) and set(table) <= {"name", "set"} and fits(table.get("name"), str)
        if not known or not isinstance(table.get("set", {}), Mapping):
            faults.append(f"a [[variant]] is {show_value(table)}; it has a name, which is text, and set, a table")
    if faults:
        raise ConfigError(faults, source)
    return make_plan(
        folder / recipe if isinstance(recipe, str) else recipe,
        variants=[Variant(table["name"], table.get("set", {})) for table in named],
        source=source,
        **{key: tables[key] for key in KINDS if key in tables},
    )


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
