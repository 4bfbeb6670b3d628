"""A recipe: read from TOML, validated, and written as TOML with every default into the folder of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from clockhands.data import CORPORA, Task
from clockhands.errors import ConfigError, describe_unknown
from clockhands.files import find_recipe
from clockhands.model.config import TransformerConfig
from clockhands.options import parse
from clockhands.reading import read_toml
from clockhands.runs.folder import RECIPE
from clockhands.runs.recipe.inheritance import inherit_tables
from clockhands.runs.recipe.keys import (
    FROM_DATA,
    SECTIONS,
    SIDES,
    TABLES,
    Tables,
    add_default_position,
    add_default_tokenizer,
    find_keys,
    make_absolute,
    make_paths_absolute,
)
from clockhands.runs.recipe.overrides import try_overrides
from clockhands.runs.recipe.sections import Batching, Tokenization, Training
from clockhands.runs.recipe.validation import (
    check_tokenizer,
    choose_architecture,
    fill_in_options,
    read_corpus,
    read_model,
    read_section,
    select_tables,
)
from clockhands.schemes.rotary.trained_length import add_trained_length

__all__ = [
    "DEFAULT_SIZES",
    "Recipe",
    "load_recipe",
    "make_recipe",
    "read_tables",
    "read_training_overrides",
    "vary_recipe",
]

DEFAULT_SIZES = {"encoder-decoder": 64, "decoder": 16, "encoder": 64}
"""Pairs or windows in a batch by default: about 2,000 predicted tokens, or 1,200 of a masked language model."""


@dataclass(frozen=True)
class Recipe:
    """A validated recipe: everything that a training needs.

    Args:
        corpus: the name of a corpus.
        corpus_options: its options, with every default.
        tokenizer, batches, training: the tables of these names.
        model: the architecture, with the positional encodings of its sides. ``vocab_size`` is a placeholder until the
            tokenizer is known.
        tables: the whole recipe as plain data, with every default.
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

    @property
    def trained_length(self) -> int | None:
        """The most tokens that a text in training can have; None for pairs without a bound."""
        return _find_text_length(self.batches, self.model.architecture)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], source: str = "the recipe") -> Recipe:
        """Make a recipe of plain tables, and validate it.

        ``source`` names the tables in messages. Raises ConfigError with every fault at once, each with the nearest
        valid name.
        """
        faults = [describe_unknown("table", name, TABLES) for name in tables if name not in TABLES]
        known, wrong = select_tables(tables)
        faults += wrong
        recipe_tables = add_default_tokenizer(add_default_position({name: known.get(name, {}) for name in TABLES}))
        recipe_tables["position"] = fill_in_options(recipe_tables["position"])
        before = len(faults)
        corpus, data = read_corpus(recipe_tables, faults)
        data_is_valid = len(faults) == before
        sections = {name: read_section(recipe_tables, name, faults) for name in SECTIONS}
        faults += check_tokenizer(corpus, sections["tokenizer"])
        if sections["batches"] is not None:
            length = _find_text_length(sections["batches"], choose_architecture(recipe_tables, corpus, data))
            recipe_tables["position"] = _fill_in_length(recipe_tables, length)
        model = read_model(recipe_tables, corpus, data, faults, data_is_valid=data_is_valid)
        if faults or model is None:
            raise ConfigError(list(dict.fromkeys(faults)), source)
        if not {"tokens", "size"} & set(recipe_tables["batches"]):
            sections["batches"] = replace(sections["batches"], size=DEFAULT_SIZES[model.architecture])
        resolved = {
            "data": {"corpus": corpus, **data},
            "tokenizer": asdict(sections["tokenizer"]),
            "model": {key: value for key, value in model.to_dict().items() if key not in (*SIDES, *FROM_DATA)},
            "position": recipe_tables["position"],
            "batches": asdict(sections["batches"]),
            "training": asdict(sections["training"]),
        }
        return cls(corpus, data, sections["tokenizer"], model, sections["batches"], sections["training"], resolved)

    def to_toml(self) -> str:
        """Return the recipe as the text of a file that ``load_recipe`` reads back to the same recipe."""
        defaults = {
            table: {name: option.default for name, option in find_keys(self.tables, table).items()}
            for table in ("data", *SECTIONS)
        }
        return tomli_w.dumps(
            {name: _make_writable(table, defaults.get(name, {})) for name, table in self.tables.items()}
        )


def load_recipe(path: str | Path, overrides: Mapping[str, Any] | None = None, *, written: bool = False) -> Recipe:
    """Read a recipe file, and set the dotted keys of ``overrides``; ``written``: their values are text, parsed first.

    Paths in the file are relative to the file, those in the overrides to the working folder.
    Raises DataError if there is no such file or it is not TOML, ConfigError with every fault of the content.
    """
    return make_recipe(read_tables(path), overrides or {}, written=written, source=str(path))


def make_recipe(
    tables: Mapping[str, Any], overrides: Mapping[str, Any], *, written: bool = False, source: str = "the recipe"
) -> Recipe:
    """Make a recipe of tables, with the dotted keys of ``overrides`` set, and validate it.

    What tables with ``training.begin_from`` leave out is taken from that run. ``written``: values of overrides are
    text, parsed first; ``source`` names the tables in messages. Raises ConfigError with the faults of both together,
    CheckpointError if there is no model to begin from, DataError if the recipe of that run cannot be read.
    """
    known, faults = select_tables(tables)
    unknown = {name: table for name, table in tables.items() if name not in TABLES}
    tables = inherit_tables({**known, **unknown}, overrides)
    tables, wrong = try_overrides(tables, overrides, written=written)
    tables = _add_length_before(tables)
    faults += wrong
    try:
        recipe = Recipe.from_tables(make_paths_absolute(tables, Path.cwd()), source)
    except ConfigError as fault:
        raise ConfigError([*faults, *fault.faults], source) from fault
    if faults:
        raise ConfigError(faults, source)
    return recipe


def _add_length_before(tables: Tables) -> Tables:
    """Return the tables with the trained length of the run to begin from, where a scheme asks for it.

    Raises DataError or ConfigError if the recipe of that run cannot be read.
    """
    training, position = tables.get("training"), tables.get("position")
    begin_from = training.get("begin_from") if isinstance(training, Mapping) else None
    if not isinstance(begin_from, (str, Path)) or add_trained_length(position, 1) == position:
        return tables
    path = Path(make_absolute(begin_from, Path.cwd())) / RECIPE
    length = make_recipe(read_tables(path), {}, source=str(path)).trained_length if path.is_file() else None
    return tables if length is None else {**tables, "position": add_trained_length(position, length)}


def vary_recipe(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """Return a recipe like this one but for these dotted keys: ``vary_recipe(recipe, {"position.scheme": "rope"})``.

    Where a field decides what others mean (``position.scheme``, ``data.corpus``, ``model.preset``), the others of its
    table go back to their defaults unless they are overridden too. Raises ConfigError.
    """
    return make_recipe(recipe.tables, overrides, source="the varied recipe")


def read_tables(path: str | Path) -> Tables:
    """Read the tables of a recipe file, unchecked, with absolute paths.

    Raises DataError if there is no such file or it is not TOML, ConfigError for a key outside any table.
    """
    path = find_recipe(path)
    tables = read_toml(path, "the recipe")
    stray = [f"{key} stands outside any table" for key, value in tables.items() if not isinstance(value, dict)]
    if stray:
        raise ConfigError(stray, str(path))
    return make_paths_absolute(tables, path.parent)


def read_training_overrides(written: Mapping[str, str]) -> dict[str, Any]:
    """Return overrides of ``[training]``, written on a command line, as their fields want them."""
    known = {f"training.{name}": option.type for name, option in find_keys({}, "training").items()}
    return {key: parse(value, known.get(key, Any)) for key, value in written.items()}


def _find_text_length(batches: Batching, architecture: object) -> int | None:
    """Return the most tokens that a text can have; None for pairs without a bound."""
    return batches.max_length if architecture == "encoder-decoder" else batches.window


def _fill_in_length(tables: Tables, length: int | None) -> dict[str, Any]:
    """Return ``[position]`` with the trained length where a scheme asks for it and this training is what gives it.

    A model to begin from was trained on texts of another length, which ``make_recipe`` reads where it is known.
    """
    position: dict[str, Any] = tables["position"]
    begins_anew = tables["training"].get("begin_from") in (None, "none")
    return position if length is None or not begins_anew else add_trained_length(position, length)


def _make_writable(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table that TOML, which has no null, can hold: None is left out where it is the default, else "none"."""
    return {
        key: "none" if value is None else _make_writable(value, {}) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None or defaults.get(key) is not None
    }
