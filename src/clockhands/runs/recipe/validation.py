"""Validation of a recipe: every table is read and judged, and every fault is reported, with the key where it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clockhands.data import CORPORA, Task
from clockhands.data.splits import ITEMS
from clockhands.errors import ConfigError, Fault, show_value
from clockhands.model.config import TransformerConfig
from clockhands.model.presets import PRESETS
from clockhands.options import MISSING, check_options, defaults_of
from clockhands.runs.recipe.keys import (
    SECTIONS,
    SIDES,
    TABLES,
    Tables,
    find_keys,
    list_model_options,
    list_position_options,
    split_by_side,
)
from clockhands.runs.recipe.sections import Tokenization
from clockhands.schemes import CATALOGUE
from clockhands.schemes.position_presets import POSITION_PRESETS

__all__ = [
    "DEFAULT_ARCHITECTURES",
    "SHAPE",
    "check_tokenizer",
    "choose_architecture",
    "fill_in_options",
    "read_corpus",
    "read_model",
    "read_section",
    "select_tables",
]

DEFAULT_ARCHITECTURES: dict[Task, str] = {"translation": "encoder-decoder", "language modelling": "decoder"}
"""The architecture for a task where the recipe names none."""
SHAPE = {
    "kind",
    "d_model",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "encoder_layers",
    "decoder_layers",
    "causal_encoder",
}
"""Keys of [model] from which schemes are built. If one is invalid, the schemes are not validated."""


def select_tables(tables: Mapping[str, Any]) -> tuple[Tables, list[str]]:
    """Return the values that are tables of a recipe, and a fault for each value that should be a table and is not."""
    faults = [
        f"[{name}] is {show_value(tables[name])}, but must be a table"
        for name in TABLES
        if not isinstance(tables.get(name, {}), Mapping)
    ]
    known = {name: dict(tables[name]) for name in tables if name in TABLES and isinstance(tables[name], Mapping)}
    position = known.get("position", {})
    for side in [side for side in SIDES if not isinstance(position.get(side, {}), (str, Mapping))]:
        faults.append(
            f"position.{side} is {show_value(position.pop(side))}, but must be the name of a scheme or a table"
        )
    return known, faults


def read_corpus(tables: Tables, faults: list[str]) -> tuple[str, dict[str, Any]]:
    """Read the name of the corpus and its options; what is wrong with them joins ``faults``."""
    name = tables["data"].get("corpus")
    if name is not None and not isinstance(name, str):
        faults.append(f"data.corpus is {show_value(name)}, but must be the name of a corpus")
        return "", {}
    if name is None:
        faults.append(f"data.corpus is missing; choose one of {', '.join(CORPORA)}")
        return "", {}
    if name not in CORPORA:
        faults.append(CORPORA.describe_unknown_name(name))
        return name, {}
    known = find_keys(tables, "data")
    values, wrong = check_options(tables["data"], known, "data", noun="key in [data]")
    faults += wrong
    return name, {key: value for key, value in {**defaults_of(known), **values}.items() if key != "corpus"}


def read_section(tables: Tables, name: str, faults: list[str]) -> Any:
    """Read one of ``SECTIONS``; what is wrong with it joins ``faults``. None if a value does not fit."""
    values, wrong = check_options(tables[name], find_keys(tables, name), name, noun=f"key in [{name}]")
    faults += wrong
    if wrong:
        return None
    section = SECTIONS[name](**values)
    faults += section.find_faults()
    return section


def check_tokenizer(corpus: str, tokenization: Tokenization | None) -> list[str]:
    """Return a fault if the tokenizer is of kind ``morpheme`` and the corpus has no list of morphemes."""
    entry = CORPORA.find(corpus)
    if entry is None or tokenization is None or tokenization.kind != "morpheme" or entry.tokenizer == "morpheme":
        return []
    return [
        f"tokenizer.kind is 'morpheme', and corpus {corpus!r} has no list of morphemes; take bpe, word or character"
    ]


def choose_architecture(tables: Tables, corpus: str, data: Mapping[str, Any]) -> Any:
    """Return ``kind`` of [model] or of its preset, unchecked, or else the architecture for the task of the corpus."""
    model, entry = tables["model"], CORPORA.find(corpus)
    task: Task = "translation" if entry is None else entry.find_task(data)
    return {"kind": DEFAULT_ARCHITECTURES[task], **(PRESETS.find(model.get("preset")) or {}), **model}["kind"]


def read_model(
    tables: Tables, corpus: str, data: Mapping[str, Any], faults: list[str], *, data_is_valid: bool
) -> TransformerConfig | None:
    """Read the model of a recipe; what is wrong with it joins ``faults``, once, for the key that causes it."""
    table = dict(tables["model"])
    preset = table.pop("preset", None)
    values, wrong = check_options(table, list_model_options(), "model", noun="key in [model]")
    sides, wrong_sides = _read_sides(tables["position"])
    faults += wrong + wrong_sides
    if preset is not None and PRESETS.find(preset) is None:
        faults.append(PRESETS.describe_unknown_name(preset))
        return None  # The sizes that the preset would have given are not known: nothing fits or fails to fit them.
    entry = CORPORA.find(corpus)
    task = "translation" if entry is None else entry.find_task(data)
    # A value that is wrong by itself is replaced by its default; what follows from that is no fault of the recipe.
    replaced = {key for key in table if key in list_model_options() and key not in values}
    # With wrong data the task is not known, nor the architecture that would follow from it.
    replaced |= set() if data_is_valid or "kind" in values else {"kind"}
    if replaced & SHAPE:
        sides = {side: {"scheme": "none"} for side in SIDES}
    whole = {"kind": DEFAULT_ARCHITECTURES[task], **(PRESETS.find(preset) or {}), **values, **sides}
    config, wrong = _make_model(whole, replaced, tables["position"])
    faults += wrong
    if config is None or not data_is_valid or "kind" in replaced:
        return None if faults else config
    faults += _find_task_faults(config, corpus, task) + _find_side_faults(config, tables["position"])
    return config


def _make_model(
    table: Mapping[str, Any], replaced: set[str], position: Mapping[str, Any]
) -> tuple[TransformerConfig | None, list[str]]:
    """Return the model of a table, or its faults but those that depend on a key whose value was ``replaced``."""
    try:
        return TransformerConfig.from_dict(table), []
    except ConfigError as fault:
        return None, [_name_key_of_recipe(text, position) for text in fault.faults if not _depends_on(text, replaced)]


def _depends_on(fault: str, keys: set[str]) -> bool:
    """Return whether a fault follows from the value of one of these keys; a fault without keys follows from none."""
    return isinstance(fault, Fault) and not keys.isdisjoint(fault.keys)


def _find_side_faults(config: TransformerConfig, position: Mapping[str, Any]) -> list[str]:
    """Return a fault for each side that has positions in the recipe and does not exist in the model."""
    return [
        f"position.{side} is given, but model.kind is {config.architecture!r}, which has no side but "
        f"{' and '.join(config.sides)}"
        for side in SIDES
        if side in position and side not in config.sides
    ]


def _read_sides(position: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the position table of each side, and what is wrong with them; one with faults gets the scheme ``none``."""
    sides: dict[str, Any] = {}
    faults: list[str] = []
    for side, table in split_by_side(position):
        name = f"position.{side}" if side in position else "position"
        scheme = table.get("scheme", "none")
        if "preset" in table:
            faults.append(f"{name}.preset: {POSITION_PRESETS.describe_unknown_name(table.pop('preset'))}")
        if CATALOGUE.find(scheme) is None:
            wrong_type = f"{name}.scheme is {show_value(scheme)}, but must be the name of a scheme"
            faults.append(
                f"{name}.scheme: {CATALOGUE.describe_unknown_name(scheme)}" if isinstance(scheme, str) else wrong_type
            )
            sides[side] = {"scheme": "none"}
        elif table:
            values, wrong = check_options(table, list_position_options(table), name, noun=f"key in [{name}]")
            faults += wrong
            sides[side] = {"scheme": "none"} if wrong else values
    return sides, faults


def _name_key_of_recipe(fault: str, position: Mapping[str, Any]) -> str:
    """Rewrite a fault of the model's ``encoder.width`` with the key that a recipe has: ``position.width``."""

    def rename(side: re.Match[str]) -> str:
        return f"position.{side[0]}" if side[1] in position else "position."

    return re.sub(rf"\b({'|'.join(SIDES)})\.(?=\w)", rename, fault)


def _find_task_faults(config: TransformerConfig, corpus: str, task: Task) -> list[str]:
    """Return a fault if the model reads pairs and the corpus has documents, or the reverse."""
    needs: Task = "translation" if config.architecture == "encoder-decoder" else "language modelling"
    if needs == task:
        return []
    return [f"model.kind is {config.architecture!r}, which reads {ITEMS[needs]}, and corpus {corpus!r} has none"]


def fill_in_options(position: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return a position table, and those of the sides within it, with the defaults of all options of their schemes.

    Options whose default is None or an empty table are left out.
    """
    table = {"scheme": position} if isinstance(position, str) else dict(position)
    own = list_position_options(table) if "scheme" in table else {}
    fixed: tuple[Any, ...] = (MISSING, {}, None)
    defaults = {name: option.default for name, option in own.items() if option.default not in fixed}
    sides = {side: fill_in_options(table[side]) for side in SIDES if side in table}
    first = {"scheme": table["scheme"]} if "scheme" in table else {}
    return {**first, **defaults, **table, **sides}
