"""Recipes: what to train, on what, how. TOML in, validated frozen dataclasses out, and TOML again in the run folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from clockhands.data import CORPORA, Task
from clockhands.data.pairs import ITEMS
from clockhands.errors import ConfigError, shown, unknown
from clockhands.files import find_recipe, read_toml
from clockhands.model.config import TransformerConfig
from clockhands.model.presets import PRESETS
from clockhands.options import MISSING, check_options, parse
from clockhands.runs.recipe.inheritance import inherit
from clockhands.runs.recipe.keys import (
    FROM_DATA,
    SECTIONS,
    SIDES,
    TABLES,
    Tables,
    add_default_position,
    keys_of,
    make_paths_absolute,
    model_options,
    position_options,
    split_by_side,
)
from clockhands.runs.recipe.overrides import apply_overrides
from clockhands.runs.recipe.sections import Batching, Tokenization, Training
from clockhands.schemes import CATALOGUE

USUAL_SIZES = {"encoder-decoder": 64, "decoder": 16, "encoder": 64}
"""Pairs, or windows, of a batch: about 2,000 tokens that are predicted, of a masked model about 1,200."""
USUAL_ARCHITECTURES: dict[Task, str] = {"translation": "encoder-decoder", "language modelling": "decoder"}
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
"""What a scheme is told of the model, and may not fit."""


@dataclass(frozen=True)
class Recipe:
    """A validated recipe. ``tables`` is the same as plain data, with every default written out.

    ``model`` has a vocabulary of the default size until the tokenizer is there.
    """

    corpus: str
    corpus_options: Mapping[str, Any]
    tokenizer: Tokenization
    model: TransformerConfig
    batches: Batching
    training: Training
    tables: Tables

    @property
    def task(self) -> Task:
        """What a model learns from the corpus, known before its text is read."""
        return CORPORA[self.corpus].find_task(self.corpus_options)

    @classmethod
    def of(cls, tables: Mapping[str, Any], source: str = "the recipe") -> Recipe:
        """From plain tables. Raises ConfigError with every fault at once, each with the nearest valid name."""
        faults = [unknown("table", name, TABLES) for name in tables if name not in TABLES]
        known, wrong = _only_tables(tables)
        faults += wrong
        given = add_default_position({name: known.get(name, {}) for name in TABLES})
        given["position"] = _with_options(given["position"])
        before = len(faults)
        corpus, data = _corpus(given, faults)
        data_stands = len(faults) == before
        sections = {name: _section(given, name, faults) for name in SECTIONS}
        model = _model(given, corpus, data, faults, data_stands=data_stands)
        if faults or model is None:
            raise ConfigError(list(dict.fromkeys(faults)), source)
        if not {"tokens", "size"} & set(given["batches"]):
            sections["batches"] = replace(sections["batches"], size=USUAL_SIZES[model.kind])
        resolved = {
            "data": {"corpus": corpus, **data},
            "tokenizer": asdict(sections["tokenizer"]),
            "model": {key: value for key, value in model.to_dict().items() if key not in (*SIDES, *FROM_DATA)},
            "position": given["position"],
            "batches": asdict(sections["batches"]),
            "training": asdict(sections["training"]),
        }
        return cls(corpus, data, sections["tokenizer"], model, sections["batches"], sections["training"], resolved)

    def to_toml(self) -> str:
        """The recipe as a file that ``load`` reads back to the same recipe."""
        usual = {
            table: {name: option.default for name, option in keys_of(self.tables, table).items()}
            for table in ("data", *SECTIONS)
        }
        return tomli_w.dumps({name: _writable(table, usual.get(name, {})) for name, table in self.tables.items()})


def load(path: str | Path, overrides: Mapping[str, Any] | None = None, *, written: bool = False) -> Recipe:
    """Read a recipe file and apply dotted ``overrides`` (``written``: as text, from a command line).

    Paths in the file are relative to the file, those in the overrides to the working folder.
    Raises DataError if there is no such file or it is no TOML, ConfigError with every fault of the content.
    """
    return combine(read_tables(path), overrides or {}, written=written, source=str(path))


def combine(
    tables: Mapping[str, Any], overrides: Mapping[str, Any], *, written: bool = False, source: str = "the recipe"
) -> Recipe:
    """Tables and overrides to a recipe. Faults of both are reported together."""
    known, faults = _only_tables(tables)
    tables = inherit({**known, **{name: table for name, table in tables.items() if name not in TABLES}}, overrides)
    try:
        tables = apply_overrides(tables, overrides, written=written)
    except ConfigError as fault:
        faults += fault.faults
        kept = {key: value for key, value in overrides.items() if not any(repr(key) in text for text in fault.faults)}
        tables = apply_overrides(tables, kept, written=written)
    try:
        recipe = Recipe.of(make_paths_absolute(tables, Path.cwd()), source)
    except ConfigError as fault:
        raise ConfigError([*faults, *fault.faults], source) from fault
    if faults:
        raise ConfigError(faults, source)
    return recipe


def vary(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Another recipe that differs in these dotted fields: ``vary(recipe, {"position.scheme": "rope"})``.

    Where a field decides what others mean (``position.scheme``, ``data.corpus``, ``model.preset``), the others of its
    table go back to their defaults unless they are among the changes too. Raises ConfigError.
    """
    return combine(recipe.tables, changes, source="the varied recipe")


def read_tables(path: str | Path) -> Tables:
    """The tables of a recipe file, unchecked, with absolute paths. Raises DataError."""
    path = find_recipe(path)
    tables = read_toml(path, "the recipe")
    stray = [f"{key} stands outside any table" for key, value in tables.items() if not isinstance(value, dict)]
    if stray:
        raise ConfigError(stray, str(path))
    return make_paths_absolute(tables, path.parent)


def read_training_overrides(written: Mapping[str, str]) -> dict[str, Any]:
    """Settings of ``[training]`` as written on a command line, read as their fields want them."""
    known = {f"training.{name}": option.type for name, option in keys_of({}, "training").items()}
    return {key: parse(value, known.get(key, Any)) for key, value in written.items()}


def _only_tables(tables: Mapping[str, Any]) -> tuple[Tables, list[str]]:
    """The tables of a recipe, without what stands in the place of one, and a sentence about each of those."""
    faults = [
        f"[{name}] is {shown(tables[name])}, but must be a table"
        for name in TABLES
        if not isinstance(tables.get(name, {}), Mapping)
    ]
    known = {name: dict(tables[name]) for name in tables if name in TABLES and isinstance(tables[name], Mapping)}
    position = known.get("position", {})
    for side in [side for side in SIDES if not isinstance(position.get(side, {}), (str, Mapping))]:
        faults.append(f"position.{side} is {shown(position.pop(side))}, but must be the name of a scheme or a table")
    return known, faults


def _corpus(given: Tables, faults: list[str]) -> tuple[str, dict[str, Any]]:
    name = given["data"].get("corpus")
    if name is not None and not isinstance(name, str):
        faults.append(f"data.corpus is {shown(name)}, but must be the name of a corpus")
        return "", {}
    if name is None:
        faults.append(f"data.corpus is missing; choose one of {', '.join(CORPORA)}")
        return "", {}
    if name not in CORPORA:
        faults.append(CORPORA.unknown(name))
        return name, {}
    known = keys_of(given, "data")
    values, wrong = check_options(given["data"], known, "data", noun="key in [data]")
    faults += wrong
    defaults = {key: option.default for key, option in known.items() if option.default is not MISSING}
    return name, {key: value for key, value in {**defaults, **values}.items() if key != "corpus"}


def _section(given: Tables, name: str, faults: list[str]) -> Any:
    values, wrong = check_options(given[name], keys_of(given, name), name, noun=f"key in [{name}]")
    faults += wrong
    if wrong:
        return None
    section = SECTIONS[name](**values)
    faults += section.faults()
    return section


def _model(
    given: Tables, corpus: str, data: Mapping[str, Any], faults: list[str], *, data_stands: bool
) -> TransformerConfig | None:
    """The model of a recipe; what is wrong with it joins ``faults``, each fault where it stands and nowhere else."""
    table = dict(given["model"])
    preset = table.pop("preset", None)
    values, wrong = check_options(table, model_options(), "model", noun="key in [model]")
    sides, strange = _sides(given["position"])
    faults += wrong + strange
    if preset is not None and PRESETS.find(preset) is None:
        faults.append(PRESETS.unknown(preset))
        return None  # The sizes that the preset would have given are not known: nothing fits or fails to fit them.
    entry = CORPORA.find(corpus)
    task = "translation" if entry is None else entry.find_task(data)
    kind = USUAL_ARCHITECTURES[task]
    # A value that is wrong by itself is replaced by its default; what follows from that is no fault of the recipe.
    replaced = {key for key in table if key in model_options() and key not in values}
    replaced |= set() if data_stands or "kind" in values else {"kind"}
    if replaced & SHAPE:
        sides = {side: {"scheme": "none"} for side in SIDES}
    try:
        config = TransformerConfig.from_dict({"kind": kind, **PRESETS.get(preset or "", {}), **values, **sides})
    except ConfigError as fault:
        true = [
            sentence for sentence in fault.faults if not any(re.search(rf"\b{key}\b", sentence) for key in replaced)
        ]
        faults += [_in_recipe(sentence, given["position"]) for sentence in true]
        return None
    if not data_stands or "kind" in replaced:
        return None if faults else config
    faults += _task_faults(config, corpus, task)
    faults += [
        f"position.{side} is given, but a model of kind {config.kind!r} has none; it has {' and '.join(config.sides)}"
        for side in SIDES
        if side in given["position"] and side not in config.sides
    ]
    return config


def _sides(position: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The position table of each side, and what is wrong with them; a side with faults has no position."""
    sides: dict[str, Any] = {}
    faults: list[str] = []
    for side, table in split_by_side(position):
        name = f"position.{side}" if side in position else "position"
        scheme = table.get("scheme", "none")
        if CATALOGUE.find(scheme) is None:
            known = isinstance(scheme, str)
            faults.append(
                f"{name}.scheme: {unknown('scheme', scheme, CATALOGUE)}"
                if known
                else f"{name}.scheme is {shown(scheme)}, but must be the name of a scheme"
            )
            sides[side] = {"scheme": "none"}
        elif table:
            values, wrong = check_options(table, position_options(table), name, noun=f"key in [{name}]")
            faults += wrong
            sides[side] = {"scheme": "none"} if wrong else values
    return sides, faults


def _in_recipe(fault: str, position: Mapping[str, Any]) -> str:
    """A fault of the model's ``encoder.width``, with the key as a recipe has it: ``position.width`` for all sides."""

    def key(side: re.Match[str]) -> str:
        return f"position.{side[0]}" if side[1] in position else "position."

    return re.sub(rf"\b({'|'.join(SIDES)})\.(?=\w)", key, fault)


def _task_faults(config: TransformerConfig, corpus: str, task: Task) -> list[str]:
    needs: Task = "translation" if config.kind == "encoder-decoder" else "language modelling"
    if needs == task:
        return []
    return [f"model.kind is {config.kind!r}, which reads {ITEMS[needs]}, and corpus {corpus!r} has none"]


def _with_options(position: Mapping[str, Any] | str) -> dict[str, Any]:
    """A position table, and those of the sides within it, with all options of their schemes."""
    table = {"scheme": position} if isinstance(position, str) else dict(position)
    own = position_options(table) if "scheme" in table else {}
    fixed: tuple[Any, ...] = (MISSING, {}, None)
    defaults = {name: option.default for name, option in own.items() if option.default not in fixed}
    sides = {side: _with_options(table[side]) for side in SIDES if side in table}
    first = {"scheme": table["scheme"]} if "scheme" in table else {}
    return {**first, **defaults, **table, **sides}


def _writable(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no null: a None is left out where it is the default anyway, else written "none"."""
    return {
        key: "none" if value is None else _writable(value, {}) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None or defaults.get(key) is not None
    }
