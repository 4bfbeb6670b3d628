"""A recipe: everything that a training needs, as TOML; validated once, and written with every default into its run.

``make_recipe`` goes one way: tables, what a run to begin from adds, overrides (``tables``), absolute paths, and then
``Recipe.from_tables``, which reads one table after the other and tells all faults together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from clockhands.data import CORPORA, Task
from clockhands.data.splits import ITEMS
from clockhands.errors import ConfigError, describe_unknown, show_value
from clockhands.files import find_recipe
from clockhands.model.config import PRESETS, TransformerConfig
from clockhands.model.position_config import SIDES
from clockhands.options import MISSING, check_options, defaults_of, parse
from clockhands.reading import read_toml
from clockhands.runs.folder import RECIPE
from clockhands.runs.recipe.sections import Batching, Tokenization, Training
from clockhands.runs.recipe.tables import (
    SECTIONS,
    TABLES,
    RecipeTables,
    add_default_position,
    add_default_tokenizer,
    apply_overrides,
    find_keys,
    inherit_tables,
    list_model_options,
    list_position_options,
    make_absolute,
    make_model_table,
    make_paths_absolute,
    select_tables,
    split_by_side,
)
from clockhands.schemes import CATALOGUE
from clockhands.schemes.position_presets import POSITION_PRESETS
from clockhands.schemes.rotary.trained_length import add_trained_length
from clockhands.settings import check_fields

DEFAULT_SIZES = {"encoder-decoder": 64, "decoder": 16, "encoder": 64}
"""Pairs or windows in a batch by default: about 2,000 predicted tokens, or 1,200 of a masked language model."""
DEFAULT_ARCHITECTURES: dict[Task, str] = {"translation": "encoder-decoder", "language modelling": "decoder"}
"""The architecture for a task where the recipe names none."""


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
    tables: RecipeTables

    @property
    def task(self) -> Task:
        """What a model learns from the corpus, known before its text is read."""
        return CORPORA[self.corpus].find_task(self.corpus_options)

    @property
    def trained_length(self) -> int | None:
        """The most tokens that a text in training can have; None for pairs without a bound."""
        return _find_text_length(self.batches, self.model.architecture)

    @classmethod
    def from_tables(
        cls, tables: Mapping[str, Any], source: str = "the recipe", faults: list[str] | None = None
    ) -> Recipe:
        """Make a recipe of plain tables, and validate it.

        ``source`` names the tables in messages; ``faults`` are those that are known already. Raises ConfigError with
        every fault at once, each with the nearest valid name.
        """
        faults = [] if faults is None else faults
        known = select_tables(tables, faults)
        known = add_default_tokenizer(add_default_position({name: known.get(name, {}) for name in TABLES}))
        known["position"] = _fill_in_options(known["position"])
        corpus, data, task = _read_corpus(known["data"], faults)
        sections: dict[str, Any] = dict.fromkeys(SECTIONS)
        for name, kind in SECTIONS.items():
            values, wrong = check_fields(kind, known[name], f"{name}.", f"key in [{name}]")
            try:
                sections[name] = None if wrong else kind(**values)
            except ConfigError as fault:
                wrong = list(fault.faults)
            faults += wrong
        entry = CORPORA.find(corpus)
        if getattr(sections["tokenizer"], "kind", "") == "morpheme" and entry and entry.tokenizer != "morpheme":
            faults.append(
                f"tokenizer.kind is 'morpheme', and corpus {corpus!r} has no list of morphemes; take bpe, word or "
                "character"
            )
        # A model to begin from was trained on texts of another length, which ``make_recipe`` reads where it is known.
        if sections["batches"] is not None and known["training"].get("begin_from") in (None, "none"):
            length = _find_text_length(sections["batches"], _choose_architecture(known, task))
            known["position"] = known["position"] if length is None else add_trained_length(known["position"], length)
        model = _read_model(known, corpus, task, faults)
        if faults or model is None:
            raise ConfigError(list(dict.fromkeys(faults)), source)
        if not {"tokens", "size"} & set(known["batches"]):
            sections["batches"] = replace(sections["batches"], size=DEFAULT_SIZES[model.architecture])
        resolved = {
            "data": {"corpus": corpus, **data}, "tokenizer": asdict(sections["tokenizer"]),
            "model": make_model_table(model), "position": known["position"], "batches": asdict(sections["batches"]),
            "training": asdict(sections["training"]),
        }  # fmt: skip
        return cls(corpus, data, sections["tokenizer"], model, sections["batches"], sections["training"], resolved)

    def to_toml(self) -> str:
        """Return the recipe as the text of a file that ``load_recipe`` reads back to the same recipe."""
        defaults = {
            table: {name: option.default for name, option in find_keys(self.tables, table).items()}
            for table in ("data", *SECTIONS)
        }
        return tomli_w.dumps({name: make_writable(table, defaults.get(name)) for name, table in self.tables.items()})


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
    faults: list[str] = []
    known = inherit_tables(select_tables(tables, faults), overrides)
    known = apply_overrides(known, overrides, written=written, faults=faults)
    begin_from, position = known.get("training", {}).get("begin_from"), known.get("position")
    if isinstance(begin_from, (str, Path)) and add_trained_length(position, 1) != position:
        # A scheme asks for the trained length: it is that of the run to begin from.
        path = Path(make_absolute(begin_from, Path.cwd())) / RECIPE
        length = make_recipe(read_tables(path), {}, source=str(path)).trained_length if path.is_file() else None
        known = known if length is None else {**known, "position": add_trained_length(position, length)}
    return Recipe.from_tables(make_paths_absolute(known, Path.cwd()), source, faults)


def vary_recipe(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """Return a recipe like this one but for these dotted keys: ``vary_recipe(recipe, {"position.scheme": "rope"})``.

    Where a field decides what others mean (``position.scheme``, ``data.corpus``, ``model.preset``), the others of its
    table go back to their defaults unless they are overridden too. Raises ConfigError.
    """
    return make_recipe(recipe.tables, overrides, source="the varied recipe")


def read_tables(path: str | Path) -> RecipeTables:
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


def _read_corpus(table: Mapping[str, Any], faults: list[str]) -> tuple[str, dict[str, Any], Task | None]:
    """Read the name of the corpus, its options and its task, which is None where anything of that is wrong."""
    name = table.get("corpus")
    if not isinstance(name, str) or name not in CORPORA:
        fault = f"data.corpus is {show_value(name)}, but must be the name of a corpus"
        if name is None:
            fault = f"data.corpus is missing; choose one of {', '.join(CORPORA)}"
        elif isinstance(name, str):
            fault = CORPORA.describe_unknown_name(name)
        faults.append(fault)
        return str(name or ""), {}, None
    known = find_keys({"data": table}, "data")
    values, wrong = check_options(table, known, "data", noun="key in [data]")
    faults += wrong
    options = {key: value for key, value in {**defaults_of(known), **values}.items() if key != "corpus"}
    return name, options, None if wrong else CORPORA[name].find_task(options)


def _choose_architecture(tables: RecipeTables, task: Task | None) -> Any:
    """Return ``kind`` of [model] or of its preset, unchecked, or else the architecture for a task."""
    preset = PRESETS.find(tables["model"].get("preset")) or {}
    return {"kind": DEFAULT_ARCHITECTURES[task or "translation"], **preset, **tables["model"]}["kind"]


def _find_text_length(batches: Batching, architecture: object) -> int | None:
    """Return the most tokens that a text can have; None for pairs without a bound."""
    return batches.max_length if architecture == "encoder-decoder" else batches.window


def _read_model(tables: RecipeTables, corpus: str, task: Task | None, faults: list[str]) -> TransformerConfig | None:
    """Read the model; what is wrong with it joins ``faults``, once, for the key that causes it."""
    position, known = tables["position"], list_model_options()
    own = {key: value for key, value in tables["model"].items() if key != "preset"}
    preset = tables["model"].get("preset")
    unknown = {"kind"} if task is None and "kind" not in own else set()
    if preset is not None and PRESETS.find(preset) is None:
        faults.append(PRESETS.describe_unknown_name(preset))
        unknown = set(known)  # the sizes that the preset would have given: nothing fits or fails to fit them
    faults += [describe_unknown("key in [model]", key, known) for key in own if key not in known]
    table = {
        **(PRESETS.find(preset) or {}), **{key: value for key, value in own.items() if key in known},
        "kind": _choose_architecture(tables, task), **_read_sides(position, faults),
    }  # fmt: skip
    try:
        config = TransformerConfig.from_dict(table, prefix="model.", unknown=frozenset(unknown))
    except ConfigError as fault:
        # A recipe has the model's ``encoder.width`` as ``position.width``, or else ``position.encoder.width``.
        side = re.compile(rf"\b({'|'.join(SIDES)})\.(?=\w)")
        faults += [
            side.sub(lambda match: f"position.{match[0] if match[1] in position else ''}", text)
            for text in fault.faults
        ]
        return None
    if task is not None:
        kind = f"model.kind is {config.architecture!r}"
        needs: Task = "translation" if config.architecture == "encoder-decoder" else "language modelling"
        if needs != task:
            faults.append(f"{kind}, which reads {ITEMS[needs]}, and corpus {corpus!r} has none")
        for other in SIDES:
            if other in position and other not in config.sides:
                sides = " and ".join(config.sides)
                faults.append(f"position.{other} is given, but {kind}, which has no side but {sides}")
    return config


def _read_sides(position: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """Return the position table of each side; a side with faults, which join ``faults``, gets the scheme ``none``."""
    sides: dict[str, Any] = {}
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
            options = list_position_options(table.get("scheme"))
            values, wrong = check_options(table, options, name, noun=f"key in [{name}]")
            faults += wrong
            sides[side] = {"scheme": "none"} if wrong else values
    return sides


def _fill_in_options(position: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return a position table, and those of the sides within it, with the defaults of all options of their schemes.

    Options whose default is None or an empty table are left out.
    """
    table = {"scheme": position} if isinstance(position, str) else dict(position)
    own = list_position_options(table["scheme"]) if "scheme" in table else {}
    fixed: tuple[Any, ...] = (MISSING, {}, None)
    defaults = {name: option.default for name, option in own.items() if option.default not in fixed}
    sides = {side: _fill_in_options(table[side]) for side in SIDES if side in table}
    first = {"scheme": table["scheme"]} if "scheme" in table else {}
    return {**first, **defaults, **table, **sides}


def make_writable(table: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a table that TOML, which has no null, can hold: None is left out where it is the default, else "none".

    Without ``defaults`` every None is left out.
    """
    made: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            made[key] = make_writable(value)
        elif value is not None:
            made[key] = value
        elif (defaults or {}).get(key) is not None:
            made[key] = "none"
    return made
