"""Set keys of a recipe by their dotted names, to values of Python or to text as a person types it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from clockhands.errors import ConfigError, UsageError, describe_unknown, show_value
from clockhands.options import convert, parse
from clockhands.runs.recipe.keys import (
    KEPT,
    SELECTORS,
    SIDES,
    TABLES,
    Tables,
    add_default_position,
    find_keys,
    has_unknown_selector,
)
from clockhands.runs.recipe.part_keys import is_part, set_in_part

__all__ = ["BESIDE_MORPHEMES", "EXCLUSIVE", "NESTED", "apply_overrides", "set_key", "try_overrides"]

NESTED = ("transform_options",)
"""Tables within ``[position]`` whose keys are options of a transform: any key may be set."""
EXCLUSIVE = (("batches.tokens", "batches.size"), ("training.max_steps", "training.epochs"))
"""Pairs of keys of which a recipe may set one; an override of one alone removes the other."""
BESIDE_MORPHEMES = ("data.corpus", "tokenizer.name", "tokenizer.vocabulary", "tokenizer.min_frequency")
"""Keys whose override removes the kind ``morpheme``, which the former corpus gave its tokenizer."""


def set_key(tables: Tables, dotted: str, value: Any, *, written: bool = False) -> None:
    """Set ``training.max_steps`` or ``position.encoder.scheme``; with ``written`` the value is text, parsed first.

    Raises UsageError for a table or a key that does not exist, with the nearest that does.
    """
    table, _, key = dotted.rpartition(".")
    inner = table.removeprefix("position.")
    if is_part(table):
        set_in_part(tables["position"], table, key, value, written=written)
        return
    if table.split(".")[0] not in TABLES or (table.startswith("position.") and inner not in (*SIDES, *NESTED)):
        raise UsageError(f"cannot set {dotted!r}: {_describe_missing_key(dotted)}")
    if table.startswith("position.") and inner in NESTED:
        _set_in_table(tables, table, key, parse(value) if written else value)
        return
    known = find_keys(tables, table)
    if key not in known and not (table == "position" and key in SIDES) and not has_unknown_selector(tables, table):
        raise UsageError(f"cannot set {dotted!r}: {describe_unknown(f'key in [{table}]', key, known)}")
    type_ = known[key].type if key in known else Any
    value = parse(value, type_) if written else value
    _set_in_table(tables, table, key, convert(value, type_))


def apply_overrides(tables: Tables, overrides: Mapping[str, Any], *, written: bool = False) -> Tables:
    """Return a copy of the tables with these dotted keys set. Raises ConfigError with all that cannot be set.

    Keys on which others depend come first, whatever the order of ``overrides``.
    """
    changed, faults = try_overrides(tables, overrides, written=written)
    if faults:
        raise ConfigError(faults, "the overrides")
    return changed


def try_overrides(tables: Tables, overrides: Mapping[str, Any], *, written: bool = False) -> tuple[Tables, list[str]]:
    """Return a copy of the tables with those dotted keys set that can be, and a fault for each of the others."""
    changed, faults = deepcopy(tables), []
    for keys in _order_keys(overrides):
        for dotted in keys:
            try:
                set_key(changed, dotted, overrides[dotted], written=written)
            except UsageError as fault:
                faults.append(str(fault))
        changed = add_default_position(changed)
    _remove_alternatives(changed, overrides)
    _remove_morphemes(changed, overrides)
    return changed, faults


def _remove_alternatives(tables: Tables, overrides: Mapping[str, Any]) -> None:
    """Remove the other key of each exclusive pair of which one key was set; where both were, validation says so."""
    for pair in EXCLUSIVE:
        for dotted, alternative in (pair, pair[::-1]):
            table, _, key = dotted.partition(".")
            if dotted in overrides and alternative not in overrides and tables.get(table, {}).get(key) is not None:
                tables[table].pop(alternative.partition(".")[2], None)


def _remove_morphemes(tables: Tables, overrides: Mapping[str, Any]) -> None:
    """Remove the kind ``morpheme`` if another corpus is set, or a key that only other kinds of tokenizer have."""
    table, is_ended = tables.get("tokenizer", {}), bool(set(BESIDE_MORPHEMES) & overrides.keys())
    if isinstance(table, dict) and table.get("kind") == "morpheme" and is_ended and "tokenizer.kind" not in overrides:
        del table["kind"]


def _order_keys(overrides: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the keys in three lists, to be set one after the other: corpus and preset, schemes, everything else."""
    first = [key for key in overrides if key in ("data.corpus", "model.preset")]
    ends = (".scheme", ".schemes", ".preset")
    schemes = [key for key in overrides if key.startswith("position.") and key.endswith(ends) and not is_part(key)]
    yield first
    yield sorted(schemes, key=len)
    yield [key for key in overrides if key not in (*first, *schemes)]


def _set_in_table(tables: Tables, table: str, key: str, value: Any) -> None:
    """Set a key of a table, which is made where there is none; a side may be written as the name of its scheme."""
    place: dict[str, Any] = tables
    for part in table.split("."):
        inner = place.setdefault(part, {})
        if isinstance(inner, str) and part in SIDES:
            inner = place[part] = {"scheme": inner}
        if not isinstance(inner, dict):
            raise UsageError(f"cannot set '{table}.{key}': {table} is {show_value(inner)}, and must be a table")
        place = inner
    # The other keys of a table belong to its scheme, corpus or preset, and go when that is another one.
    selectors = (SELECTORS.get(table.split(".")[0]), *(("schemes", "preset") if table.startswith("position") else ()))
    if key in selectors and place.get(key) != value:
        for other in [name for name in place if name not in KEPT]:
            del place[other]
    place[key] = value


def _describe_missing_key(dotted: str) -> str:
    """Say why a dotted key names no table of a recipe, with the nearest that exists."""
    if "." not in dotted:
        return f"write the table before the key, as in training.{dotted} ({', '.join(TABLES)})"
    return describe_unknown("table", dotted.rpartition(".")[0], (*TABLES, *(f"position.{side}" for side in SIDES)))
