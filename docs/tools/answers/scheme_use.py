"""Which schemes the variants of a plan use, read from the plan, and of which of them a variant can say something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from clockhands.comparison import Plan
from clockhands.model.position_config import SIDES_BY_ARCHITECTURE, PositionConfig, Side
from clockhands.model.side_schemes import list_layer_specs
from clockhands.runs.recipe import Recipe
from clockhands.schemes import read_part

__all__ = ["SchemeUse", "read_uses"]

COMPOSITION, NONE = "composition", "none"
Positions = Mapping[Side, PositionConfig]


@dataclass(frozen=True)
class SchemeUse:
    """The schemes of one variant.

    Args:
        used: those that a layer has; ``none`` where a layer has none, ``composition`` where it has several.
        compared: those that its result can say something of. They are the schemes of a side whose positions are not the
            baseline's, where nothing else differs, neither the model nor the training; of the baseline, those of every
            side that some such variant has otherwise.
        words: them in words, of each side where they differ: ``rope + window | none``.
    """

    used: frozenset[str]
    compared: frozenset[str]
    words: str


def read_uses(plan: Plan) -> dict[str, SchemeUse]:
    """Return the schemes of every variant of a plan."""
    recipes = {variant.name: plan.get_recipe(variant.name, plan.seeds[0]) for variant in plan.variants}
    positions = {name: _open(recipe) for name, recipe in recipes.items()}
    base = positions[plan.baseline]
    changed = {
        name: {side for side in {*base, *own} if base.get(side) != own.get(side)}
        if _drop_positions(recipes[name]) == _drop_positions(recipes[plan.baseline])
        else set[Side]()
        for name, own in positions.items()
    }
    changed[plan.baseline] = set[Side]().union(*changed.values())
    return {
        name: SchemeUse(
            used=_list_schemes(own.values()),
            compared=_list_schemes(own[side] for side in changed[name] & own.keys()),
            words=_describe(own),
        )
        for name, own in positions.items()
    }


def _open(recipe: Recipe) -> Positions:
    """Return how each side encodes position; cross-attention only if it does, since as a rule it does not."""
    positions = {side: getattr(recipe.model, side) for side in SIDES_BY_ARCHITECTURE[recipe.model.architecture]}
    return {side: position for side, position in positions.items() if side != "cross" or position.scheme != NONE}


def _drop_positions(recipe: Recipe) -> dict[str, object]:
    """Return all tables of a recipe but that of positions."""
    return {table: values for table, values in recipe.tables.items() if table != "position"}


def _list_schemes(positions: Iterable[PositionConfig]) -> frozenset[str]:
    """Return the schemes of all layers, ``none`` and ``composition`` among them."""
    layers = [layer for position in positions for layer in _list_layers(position)]
    several = {COMPOSITION} if any(len(layer) > 1 for layer in layers) else set()
    return frozenset(several.union(*(layer or (NONE,) for layer in layers)))


def _list_layers(position: PositionConfig) -> Iterator[tuple[str, ...]]:
    """Yield the schemes of each kind of layer that a side has."""
    parts = position.options["schemes"] if position.scheme == COMPOSITION else [position.scheme]
    common = [name for name, _ in map(read_part, parts) if name != NONE]
    for specs in list_layer_specs(position, max(1, len(position.pattern))):
        yield (*common, *(name for name, _ in specs))
    if position.skip_every:
        yield ()


def _describe(positions: Positions) -> str:
    names = {side: position.name for side, position in positions.items()}
    if len({*names.values()}) == 1:
        return next(iter(names.values()))
    return ", ".join(f"{side}: {name}" for side, name in names.items())
