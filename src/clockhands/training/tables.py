"""A recipe as plain tables: which keys there are, setting one by its dotted name, paths made absolute."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from clockhands.data import CORPORA
from clockhands.errors import ConfigError, UsageError, shown, unknown
from clockhands.model.config import Position, TransformerConfig
from clockhands.model.presets import PRESETS
from clockhands.options import Option, convert, options_of, parse, takes_path
from clockhands.schemes import CATALOGUE
from clockhands.training.sections import Batching, Tokenization, Training

T = TypeVar("T")
Tables = dict[str, dict[str, Any]]
SECTIONS: dict[str, type[Any]] = {"tokenizer": Tokenization, "batches": Batching, "training": Training}
TABLES = ("data", "tokenizer", "model", "position", "batches", "training")
SIDES = ("encoder", "decoder", "cross")
SELECTORS = {"data": "corpus", "model": "preset", "position": "scheme"}
"""The key of a table on which its other keys depend: choosing another one there drops what belonged to the former."""
KEPT = (*SIDES, "combine", "width", "every_layer", "skip_every", "transform", "transform_options")
"""What stays of ``[position]`` when its scheme changes: how the encoding enters, not the options of the scheme."""
NESTED = ("transform_options",)
EXCLUSIVE = ({"batches.tokens", "batches.size"}, {"training.max_steps", "training.epochs"})
"""Two ways to say the same; setting one takes the other away."""
FROM_DATA = ("vocab_size", "source_vocab_size")
"""What the model is told by the tokenizer, not by the recipe."""


def model_fields() -> dict[str, Option]:
    """The keys of ``[model]`` besides ``preset``."""
    return {
        name: option
        for name, option in options_of(TransformerConfig).items()
        if name not in FROM_DATA and name not in SIDES
    }


def position_fields(table: Mapping[str, Any]) -> Mapping[str, Option]:
    """The keys of a ``[position]`` table: how the encoding enters, and the options of its scheme."""
    own = {name: option for name, option in options_of(Position).items() if name != "options"}
    scheme = entry(CATALOGUE, table.get("scheme"))
    return {**({} if scheme is None else options_of(scheme)), **own}


def entry(catalogue: Mapping[str, T], name: object) -> T | None:
    """What a catalogue has under a name; None for an unknown one, and for a list, a table or a number."""
    return catalogue.get(name) if isinstance(name, str) else None


def known_keys(tables: Mapping[str, Any], table: str) -> Mapping[str, Option]:
    """The keys that a table (``training``, ``position.encoder``) takes, given what the recipe says so far."""
    if table in SECTIONS:
        return options_of(SECTIONS[table])
    if table == "data":
        corpus = entry(CORPORA, tables.get("data", {}).get("corpus"))
        return {"corpus": Option("corpus", str, None), **({} if corpus is None else options_of(corpus))}
    if table == "model":
        return {"preset": Option("preset", str, None), **model_fields()}
    return position_fields({"scheme": _scheme(tables, table)})


def _scheme(tables: Mapping[str, Any], table: str) -> Any:
    """The scheme of ``position``, or of ``position.encoder``: its own, or else that of all."""
    common = tables.get("position", {})
    side = common.get(table.removeprefix("position."), {}) if "." in table else {}
    own = {"scheme": side} if isinstance(side, str) else side
    return own.get("scheme", common.get("scheme")) if isinstance(own, Mapping) else None


def is_open(tables: Mapping[str, Any], table: str) -> bool:
    """Whether nobody can say which keys a table takes: its scheme or corpus is unknown, which is told by itself."""
    if table == "data":
        name = tables.get("data", {}).get("corpus")
        return name is not None and entry(CORPORA, name) is None
    name = _scheme(tables, table) if table.startswith("position") else None
    return name is not None and entry(CATALOGUE, name) is None


def set_key(tables: Tables, dotted: str, value: Any, *, written: bool = False) -> None:
    """Set ``training.max_steps`` or ``position.encoder.scheme``; text that was ``written`` by hand is read first.

    Raises UsageError for a table or a key that does not exist, with the nearest that does.
    """
    table, _, key = dotted.rpartition(".")
    if table.split(".")[0] not in TABLES or (table.startswith("position.") and table[9:] not in (*SIDES, *NESTED)):
        raise UsageError(f"cannot set {dotted!r}: {_no_such_key(dotted)}")
    if table[9:] in NESTED:
        _put(tables, table, key, parse(value) if written else value)
        return
    known = known_keys(tables, table)
    if key not in known and not (table == "position" and key in SIDES) and not is_open(tables, table):
        raise UsageError(f"cannot set {dotted!r}: {unknown(f'key in [{table}]', key, known)}")
    type_ = known[key].type if key in known else Any
    value = parse(value, type_) if written else value
    _put(tables, table, key, convert(value, type_))
    for pair in EXCLUSIVE:
        for other in pair - {dotted} if dotted in pair else ():
            tables[table].pop(other.rpartition(".")[2], None)


def apply(tables: Tables, changes: Mapping[str, Any], *, written: bool = False) -> Tables:
    """A copy of the tables with these dotted keys set; all that cannot be set is reported at once.

    Keys on which others depend come first, whatever the order of ``changes``.
    """
    changed, faults = deepcopy(tables), []
    for keys in _waves(changes):
        for dotted in keys:
            try:
                set_key(changed, dotted, changes[dotted], written=written)
            except UsageError as fault:
                faults.append(str(fault))
        changed = with_default_position(changed)
    if faults:
        raise ConfigError(faults, "the settings")
    return changed


def with_default_position(tables: Tables) -> Tables:
    """The tables with the preset's scheme, or the paper's, where ``[position]`` names none."""
    position, model = tables.get("position", {}), tables.get("model", {})
    if not isinstance(position, Mapping) or "scheme" in position or {"encoder", "decoder"} <= set(position):
        return tables
    preset = PRESETS.get(str(model.get("preset")), {}) if isinstance(model, Mapping) else {}
    return {**tables, "position": {**preset.get("decoder", {"scheme": "sinusoidal"}), **position}}


def with_absolute_paths(tables: Tables, base: Path) -> Tables:
    """The tables with every relative path in ``[data]`` and ``[training]`` taken from ``base``, as strings."""
    moved = dict(tables)
    for table in [name for name in ("data", "training") if isinstance(tables.get(name), Mapping)]:
        known = known_keys(tables, table)
        moved[table] = {
            key: _absolute(value, base) if key in known and takes_path(known[key].type) else value
            for key, value in tables[table].items()
        }
    return moved


def position_tables(position: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The whole table of each side: what ``[position]`` says of all, and what ``[position.encoder]`` says of one.

    A side with a scheme of its own takes nothing from the common table. Cross-attention has position only if asked.
    """
    common = {key: value for key, value in position.items() if key not in SIDES}
    for side in SIDES:
        own = position.get(side, {})
        own = {"scheme": own} if isinstance(own, str) else dict(own) if isinstance(own, Mapping) else {}
        alone = side == "cross" or own.get("scheme", common.get("scheme")) != common.get("scheme")
        yield side, own if alone else {**common, **own}


def _waves(changes: Mapping[str, Any]) -> Iterator[list[str]]:
    """The keys in the order in which they must be set: corpus and preset, schemes, everything else."""
    first = [key for key in changes if key in ("data.corpus", "model.preset")]
    schemes = [key for key in changes if key.startswith("position.") and key.endswith(".scheme")]
    yield first
    yield sorted(schemes, key=len)
    yield [key for key in changes if key not in (*first, *schemes)]


def _put(tables: Tables, table: str, key: str, value: Any) -> None:
    place: dict[str, Any] = tables
    for part in table.split("."):
        inner = place.setdefault(part, {})
        if isinstance(inner, str):
            inner = place[part] = {"scheme": inner}
        if not isinstance(inner, dict):
            raise UsageError(f"cannot set {table}.{key}: {table} is {shown(inner)}, and must be a table")
        place = inner
    if SELECTORS.get(table.split(".")[0]) == key and place.get(key) != value:
        for other in [name for name in place if name not in KEPT]:
            del place[other]
    place[key] = value


def _absolute(value: Any, base: Path) -> Any:
    if isinstance(value, (list, tuple)):
        return [_absolute(item, base) for item in value]
    if not isinstance(value, (str, Path)):
        return value
    # os.path, unlike pathlib, leaves the home of somebody who does not exist as it is written.
    return str((base / os.path.expanduser(value)).absolute())  # noqa: PTH111


def _no_such_key(dotted: str) -> str:
    if "." not in dotted:
        return f"write the table before the key, as in training.{dotted} ({', '.join(TABLES)})"
    return unknown("table", dotted.rpartition(".")[0], (*TABLES, *(f"position.{side}" for side in SIDES)))
