"""A plan: variants × seeds of one recipe, the budget that all get, and what is matched. It imports no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clockhands.comparison.plan_settings import (
    MARGINS,
    MATCHES,
    MEASURES,
    METRICS,
    check_architecture,
    check_despite,
    check_scores,
    choose_metric,
    format_margin,
    read_budget,
    read_seeds,
)
from clockhands.comparison.trial import validate
from clockhands.comparison.variants import TEXT_SEED, Variant, check_names, check_variant, expand_grid
from clockhands.errors import ConfigError, describe_unknown
from clockhands.findings import Number
from clockhands.options import check_value
from clockhands.runs.recipe import Recipe, load_recipe, make_recipe, vary_recipe
from clockhands.runs.recipe.keys import SIDES

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
    def margin_text(self) -> str:
        """The margin of equality with its unit."""
        return format_margin(self.equal_within, self.unit)

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
        drawn = [key for key in _find_scheme_seeds(recipe.tables["position"]) if key not in overrides]
        return vary_recipe(recipe, dict.fromkeys(drawn, seed)) if drawn else recipe

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``from_dict`` reads back."""
        plain = {name: getattr(self, name) for name in _Written.__dataclass_fields__}
        recipe = json.loads(json.dumps(_make_relative(self.recipe.tables, self.folder)))
        variants = [[variant.name, dict(variant.overrides)] for variant in self.variants]
        return {**plain, "recipe": recipe, "variants": variants}

    @classmethod
    def from_dict(cls, written: Any) -> Plan:
        """Return the plan that ``to_dict`` wrote. Raises ValueError or UsageError for what is none."""
        read = vars(validate(_Written, written))
        variants = tuple(Variant(name, overrides) for name, overrides in read["variants"])
        faults: list[str] = check_scores(read["margin"], read["learned"])
        read_seeds(read["seeds"], faults)
        faults += _find_unknown_names(read["metric"], read["match"], read["inside"], read["baseline"], variants)
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


def _make_relative(tables: Mapping[str, Any], folder: Path | None) -> Mapping[str, Any]:
    """Return the tables of a recipe with the paths of its text relative to a folder, where they are below it."""
    if folder is None:
        return tables
    start = f"{folder.absolute()}/"
    data = {k: v.removeprefix(start) if isinstance(v, str) else v for k, v in tables["data"].items()}
    return {**tables, "data": data}


def _find_scheme_seeds(position: Mapping[str, Any]) -> list[str]:
    """Return the keys of the seeds of schemes that the recipe leaves at 0, their default."""
    sides = {"position": position, **{f"position.{side}": position[side] for side in SIDES if side in position}}
    return [f"{table}.seed" for table, options in sides.items() if options.get("seed") == 0]


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
    faults = check_value("target", target, float | None) + check_scores(margin, learned) + check_despite(despite)
    faults += check_value("redraw_text", redraw_text, bool | None)
    if faults:
        raise ConfigError(faults, source)
    base = _open_recipe(recipe)
    chosen = (*expand_grid(vary or {}, faults), *variants)
    numbers, limit = read_seeds(seeds, faults), read_budget(budget, base, faults)
    metric = metric or choose_metric(base)
    baseline = baseline or (chosen[0].name if chosen else "")
    faults += check_names(chosen) + _find_unknown_names(metric, match, inside, baseline, chosen)
    faults += check_architecture(base, metric)
    faults += [fault for variant in chosen for fault in check_variant(base, variant, redrawn=bool(redraw_text))]
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)), source)
    return Plan(
        recipe=base, variants=chosen, seeds=numbers, baseline=baseline, metric=metric, match=match, budget=limit,
        target=target, inside=tuple(inside), title=title, margin=margin, learned=learned, despite=despite or None,
        redraw_text=redraw_text or None,
    )  # fmt: skip


def _find_unknown_names(
    metric: str, match: str, inside: Sequence[str], baseline: str, variants: Sequence[Variant]
) -> list[str]:
    """Return a fault for each unknown name: of the metric, of what is matched, of a measure, of the baseline."""
    named = [variant.name for variant in variants]
    faults = [describe_unknown("metric", metric, METRICS)] if metric not in METRICS else []
    faults += [describe_unknown("match", match, MATCHES)] if match not in MATCHES else []
    faults += [describe_unknown("measure", name, MEASURES) for name in inside if name not in MEASURES]
    return faults + ([describe_unknown("baseline", baseline, named)] if named and baseline not in named else [])


def _open_recipe(recipe: Recipe | str | Path | Mapping[str, Any]) -> Recipe:
    """Return a recipe that is given as one, as the path of its file or as tables."""
    if isinstance(recipe, Recipe):
        return recipe
    return load_recipe(recipe) if isinstance(recipe, (str, Path)) else make_recipe(dict(recipe), {})
