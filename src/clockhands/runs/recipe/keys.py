"""The tables of a recipe, and which keys each of them takes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from clockhands.data import CORPORA
from clockhands.model.config import TransformerConfig
from clockhands.model.config_types import Side
from clockhands.model.position_config import PositionConfig, spell_out_short_forms
from clockhands.model.presets import PRESETS
from clockhands.options import Option, options_of, takes_path
from clockhands.runs.recipe.sections import Batching, Tokenization, Training
from clockhands.schemes import CATALOGUE, Composition

__all__ = [
    "FROM_DATA",
    "KEPT",
    "SECTIONS",
    "SELECTORS",
    "SIDES",
    "TABLES",
    "Tables",
    "add_default_position",
    "add_default_tokenizer",
    "find_keys",
    "has_unknown_selector",
    "list_model_options",
    "list_position_options",
    "make_absolute",
    "make_paths_absolute",
    "split_by_side",
]

Tables = dict[str, dict[str, Any]]
"""The tables of a recipe by name; values are plain data."""
SECTIONS: dict[str, type[Any]] = {"tokenizer": Tokenization, "batches": Batching, "training": Training}
"""The tables that are read into a dataclass each."""
TABLES = ("data", "tokenizer", "model", "position", "batches", "training")
"""All tables, in the order in which they are written."""
SIDES: tuple[Side, ...] = get_args(Side)
"""Parts of a model that may have positions of their own, each in a table within ``[position]``."""
SELECTORS = {"data": "corpus", "model": "preset", "position": "scheme"}
"""By table, the key on which its other keys depend; changing it resets those."""
KEPT = (*SIDES, "combine", "width", "every_layer", "skip_every", "transform", "transform_options")
"""Keys of ``[position]`` that stay when its scheme changes: they say how the encoding enters the model."""
FROM_DATA = ("vocab_size", "source_vocab_size")
"""Fields of the model that follow from the tokenizer, so that no recipe has them."""


def list_model_options() -> dict[str, Option]:
    """Return the keys of ``[model]`` besides ``preset``."""
    return {
        name: option
        for name, option in options_of(TransformerConfig).items()
        if name not in FROM_DATA and name not in SIDES
    }


def list_position_options(table: Mapping[str, Any]) -> Mapping[str, Option]:
    """Return the keys of a ``[position]`` table: how the encoding enters, and the options of its scheme."""
    own = {name: option for name, option in options_of(PositionConfig).items() if name != "options"}
    scheme = CATALOGUE.find(table.get("scheme"))
    return {**({} if scheme is None else options_of(scheme)), **own}


def find_keys(tables: Mapping[str, Any], table: str) -> Mapping[str, Option]:
    """Return the keys that a table (``training``, ``position.encoder``) takes, given what the recipe says so far."""
    if table in SECTIONS:
        return options_of(SECTIONS[table])
    if table == "data":
        corpus = CORPORA.find(tables.get("data", {}).get("corpus"))
        return {"corpus": Option("corpus", str, None), **({} if corpus is None else corpus.options)}
    if table == "model":
        return {"preset": Option("preset", str, None), **list_model_options()}
    short = {"preset": Option("preset", str, None), "schemes": options_of(Composition)["schemes"]}
    return {**list_position_options({"scheme": _get_scheme(tables, table)}), **short}


def _get_scheme(tables: Mapping[str, Any], table: str) -> Any:
    """Return the scheme of ``position``, or of ``position.encoder``: its own, or else the one of ``[position]``."""
    common = tables.get("position", {})
    side = common.get(table.removeprefix("position."), {}) if "." in table else {}
    own = {"scheme": side} if isinstance(side, str) else side
    return own.get("scheme", common.get("scheme")) if isinstance(own, Mapping) else None


def has_unknown_selector(tables: Mapping[str, Any], table: str) -> bool:
    """Return whether the scheme or corpus of a table is unknown, so that none of its keys can be judged."""
    if table == "data":
        name = tables.get("data", {}).get("corpus")
        return name is not None and CORPORA.find(name) is None
    name = _get_scheme(tables, table) if table.startswith("position") else None
    return name is not None and CATALOGUE.find(name) is None


def add_default_position(tables: Tables) -> Tables:
    """Return the tables with the preset's scheme, or the paper's, where ``[position]`` names none.

    What short forms of ``[position]`` stand for is spelled out.
    """
    position, model = tables.get("position", {}), tables.get("model", {})
    if isinstance(position, Mapping):
        position = {
            key: spell_out_short_forms(value) if key in SIDES and isinstance(value, Mapping) else value
            for key, value in spell_out_short_forms(position).items()
        }
        tables = {**tables, "position": position} if "position" in tables else tables
    if not isinstance(position, Mapping) or "scheme" in position or {"encoder", "decoder"} <= set(position):
        return tables
    preset = PRESETS.get(str(model.get("preset")), {}) if isinstance(model, Mapping) else {}
    default = spell_out_short_forms(preset.get("decoder", {"scheme": "sinusoidal"}))
    return {**tables, "position": {**default, **position}}


def add_default_tokenizer(tables: Tables) -> Tables:
    """Return the tables with the corpus's kind of tokenizer where ``[tokenizer]`` asks for no kind, size or name."""
    table, corpus = tables.get("tokenizer", {}), CORPORA.find(tables.get("data", {}).get("corpus"))
    if corpus is None or {"kind", "vocabulary", "min_frequency", "name"} & table.keys():
        return tables
    return {**tables, "tokenizer": {"kind": corpus.tokenizer, **table}}


def make_paths_absolute(tables: Tables, base: Path) -> Tables:
    """Return the tables with every relative path in ``[data]`` and ``[training]`` taken from ``base``, as strings."""
    moved = dict(tables)
    for table in [name for name in ("data", "training") if isinstance(tables.get(name), Mapping)]:
        known = find_keys(tables, table)
        moved[table] = {
            key: make_absolute(value, base) if key in known and takes_path(known[key].type) else value
            for key, value in tables[table].items()
        }
    return moved


def split_by_side(position: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the whole table of each side: what ``[position]`` says of all, and what ``[position.encoder]`` says of one.

    A side with a scheme of its own takes nothing from the common table. Cross-attention has position only if
    ``[position.cross]`` gives it.
    """
    common = {key: value for key, value in position.items() if key not in SIDES}
    for side in SIDES:
        own = position.get(side, {})
        own = {"scheme": own} if isinstance(own, str) else dict(own) if isinstance(own, Mapping) else {}
        alone = side == "cross" or own.get("scheme", common.get("scheme")) != common.get("scheme")
        yield side, own if alone else {**common, **own}


def make_absolute(value: Any, base: Path) -> Any:
    """Return a path, or a list of paths, as text, taken from ``base`` where relative; any other value as it is."""
    if isinstance(value, (list, tuple)):
        return [make_absolute(item, base) for item in value]
    if not isinstance(value, (str, Path)):
        return value
    # os.path, unlike pathlib, leaves the home of somebody who does not exist as it is written.
    return str((base / os.path.expanduser(value)).absolute())  # noqa: PTH111
