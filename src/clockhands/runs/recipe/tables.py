"""The tables of a recipe: which keys each takes, how keys are set by their dotted names, and what is taken over.

What a recipe with ``training.begin_from`` leaves out of [model], [position] and [tokenizer] is taken from that run, or
from any Hugging Face folder with a model of this project: the model from its ``config.json``, and its tokenizer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from clockhands.catalogue import Catalogue
from clockhands.data import CORPORA
from clockhands.errors import CheckpointError, ConfigError, UsageError, describe_unknown, show_value
from clockhands.model.config import PRESETS, TransformerConfig
from clockhands.model.position_config import SIDES, PositionConfig, spell_out_short_forms
from clockhands.options import Option, convert, options_of, parse, takes_path
from clockhands.pretrained import CONFIG, TOKENIZER
from clockhands.runs.folder import find_model_folder
from clockhands.runs.recipe.sections import Batching, Tokenization, Training
from clockhands.schemes import CATALOGUE, Composition

RecipeTables = dict[str, dict[str, Any]]
"""The tables of a recipe by name; values are plain data."""
SECTIONS: dict[str, type[Any]] = {"tokenizer": Tokenization, "batches": Batching, "training": Training}
"""The tables that are read into settings each."""
TABLES = ("data", "tokenizer", "model", "position", "batches", "training")
"""All tables, in the order in which they are written."""
FROM_DATA = ("vocab_size", "source_vocab_size")
"""Fields of the model that follow from the tokenizer, so that no recipe has them."""
_SELECTORS = {"data": ("corpus",), "model": ("preset",), "position": ("scheme", "schemes", "preset")}
"""By table, the keys on which its other keys depend; changing one resets those."""
_KEPT = (*SIDES, "combine", "width", "every_layer", "skip_every", "transform", "transform_options")
"""Keys of ``[position]`` that stay when its scheme changes: they say how the encoding enters the model."""
_EXCLUSIVE = (("batches.tokens", "batches.size"), ("training.max_steps", "training.epochs"))
"""Pairs of keys of which a recipe may set one; an override of one alone removes the other."""
_BESIDE_MORPHEMES = {"data.corpus", "tokenizer.name", "tokenizer.vocabulary", "tokenizer.min_frequency"}
"""Keys whose override removes the kind ``morpheme``, which the former corpus gave its tokenizer."""
_INDEXED = r"\.(?:layers|schemes)\[\d+\]"
_PART = re.compile(
    rf"position(?:\.(?:{'|'.join(SIDES)}))?(?:\.kinds\.[^.\[]+(?:{_INDEXED})?|{_INDEXED}(?:\.schemes\[\d+\])?)"
)
"""A dotted name of one scheme among several: ``position.encoder.layers[0]``, ``position.kinds.local.schemes[1]``."""


def list_model_options() -> dict[str, Option]:
    """Return the keys of ``[model]`` besides ``preset``."""
    return {name: option for name, option in options_of(TransformerConfig).items() if name not in (*FROM_DATA, *SIDES)}


def list_position_options(scheme: Any) -> dict[str, Option]:
    """Return the keys of a ``[position]`` table: how the encoding enters, and the options of its scheme."""
    own = {name: option for name, option in options_of(PositionConfig).items() if name != "options"}
    kind = CATALOGUE.find(scheme)
    return {**({} if kind is None else options_of(kind)), **own}


def find_keys(tables: Mapping[str, Any], table: str) -> Mapping[str, Option]:
    """Return the keys that a table (``training``, ``position.encoder``) takes, given what the recipe says so far."""
    if table in SECTIONS:
        return options_of(SECTIONS[table])
    if table == "data":
        corpus = CORPORA.find(_get_selector(tables, table))
        return {"corpus": Option("corpus", str, None), **({} if corpus is None else corpus.options)}
    preset = {"preset": Option("preset", str, None)}
    if table == "model":
        return {**preset, **list_model_options()}
    return {**list_position_options(_get_selector(tables, table)), **preset,
            "schemes": options_of(Composition)["schemes"]}  # fmt: skip


def _get_selector(tables: Mapping[str, Any], table: str) -> Any:
    """Return the corpus of ``data``, or the scheme of ``position`` or ``position.encoder``, which may have its own."""
    if table == "data":
        return tables.get("data", {}).get("corpus")
    common = tables.get("position", {})
    own = _as_table(common.get(table.removeprefix("position."), {}) if "." in table else {})
    return own.get("scheme", common.get("scheme"))


def _as_table(side: Any) -> dict[str, Any]:
    """Return the table of a side, which may be written as the name of its scheme; empty for anything else."""
    written = {"scheme": side} if isinstance(side, str) else side
    return spell_out_short_forms(written) if isinstance(written, Mapping) else {}


def select_tables(tables: Mapping[str, Any], faults: list[str]) -> RecipeTables:
    """Return the values that are tables of a recipe; what is none, or of no recipe, joins ``faults``."""
    faults += [describe_unknown("table", name, TABLES) for name in tables if name not in TABLES]
    known = {name: dict(tables[name]) for name in TABLES if isinstance(tables.get(name), Mapping)}
    for name in [name for name in TABLES if name in tables and name not in known]:
        faults.append(f"[{name}] is {show_value(tables[name])}, but must be a table")
    position = known.get("position", {})
    for side in [side for side in SIDES if not isinstance(position.get(side, {}), (str, Mapping))]:
        faults.append(
            f"position.{side} is {show_value(position.pop(side))}, but must be the name of a scheme or a table"
        )
    return known


def add_default_position(tables: RecipeTables) -> RecipeTables:
    """Return the tables with the preset's scheme, or the paper's, where ``[position]`` names none.

    What short forms of ``[position]`` stand for is spelled out.
    """
    position = spell_out_short_forms(tables.get("position", {}))
    for side in [side for side in SIDES if side in position]:
        written, spelled = position[side], _as_table(position[side])
        position[side] = written if spelled in (written, {"scheme": written}) else spelled
    if not ("scheme" in position or {"encoder", "decoder"} <= set(position)):
        preset = PRESETS.find(tables.get("model", {}).get("preset")) or {}
        position = {**spell_out_short_forms(preset.get("decoder", {"scheme": "sinusoidal"})), **position}
    return {**tables, "position": position}


def add_default_tokenizer(tables: RecipeTables) -> RecipeTables:
    """Return the tables with the corpus's kind of tokenizer where ``[tokenizer]`` asks for no kind, size or name."""
    table, corpus = tables.get("tokenizer", {}), CORPORA.find(_get_selector(tables, "data"))
    if corpus is None or {"kind", "vocabulary", "min_frequency", "name"} & table.keys():
        return tables
    return {**tables, "tokenizer": {"kind": corpus.tokenizer, **table}}


def split_by_side(position: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the whole table of each side: what ``[position]`` says of all, and what ``[position.encoder]`` says of one.

    A side with a scheme of its own takes nothing from the common table. Cross-attention has position only if
    ``[position.cross]`` gives it.
    """
    common = {key: value for key, value in position.items() if key not in SIDES}
    for side in SIDES:
        own = _as_table(position.get(side, {}))
        alone = side == "cross" or own.get("scheme", common.get("scheme")) != common.get("scheme")
        yield side, own if alone else {**common, **own}


def make_paths_absolute(tables: RecipeTables, base: Path) -> RecipeTables:
    """Return the tables with every relative path in ``[data]`` and ``[training]`` taken from ``base``, as strings."""
    moved = dict(tables)
    for table in [name for name in ("data", "training") if isinstance(tables.get(name), Mapping)]:
        paths = {name for name, option in find_keys(tables, table).items() if takes_path(option.type)}
        moved[table] = {
            key: make_absolute(value, base) if key in paths else value for key, value in tables[table].items()
        }
    return moved


def make_absolute(value: Any, base: Path) -> Any:
    """Return a path, or a list of paths, as text, taken from ``base`` where relative; any other value as it is."""
    if isinstance(value, (list, tuple)):
        return [make_absolute(item, base) for item in value]
    if not isinstance(value, (str, Path)):
        return value
    # os.path, unlike pathlib, leaves the home of somebody who does not exist as it is written.
    return str((base / os.path.expanduser(value)).absolute())  # noqa: PTH111


def apply_overrides(
    tables: RecipeTables, overrides: Mapping[str, Any], *, written: bool = False, faults: list[str] | None = None
) -> RecipeTables:
    """Return a copy of the tables with these dotted keys set; ``written``: their values are text, parsed first.

    Keys on which others depend come first, whatever the order of ``overrides``: corpus and preset, then schemes. What
    cannot be set joins ``faults``, and raises ConfigError where no list is given.
    """
    changed, wrong = deepcopy(tables), [] if faults is None else faults
    first, schemes, rest = [], [], []
    for key in overrides:
        table, _, name = key.rpartition(".")
        if key in ("data.corpus", "model.preset"):
            first.append(key)
        elif key.startswith("position.") and name in _SELECTORS["position"] and not _PART.fullmatch(key):
            schemes.append(key)
        else:
            rest.append(key)
    for keys in (first, sorted(schemes, key=len), rest):
        for dotted in keys:
            try:
                _set_key(changed, dotted, overrides[dotted], written=written)
            except UsageError as fault:
                wrong.append(f"cannot set {dotted!r}: {fault}")
        changed = add_default_position(changed)
    for pair in _EXCLUSIVE:
        for dotted, alternative in (pair, pair[::-1]):
            table, _, key = dotted.partition(".")
            if dotted in overrides and alternative not in overrides and changed.get(table, {}).get(key) is not None:
                changed[table].pop(alternative.partition(".")[2], None)
    kind_is_left = "tokenizer.kind" not in overrides and _BESIDE_MORPHEMES & overrides.keys()
    if changed.get("tokenizer", {}).get("kind") == "morpheme" and kind_is_left:
        del changed["tokenizer"]["kind"]
    if wrong and faults is None:
        raise ConfigError(wrong, "the overrides")
    return changed


def _set_key(tables: RecipeTables, dotted: str, value: Any, *, written: bool) -> None:
    """Set one key. Raises UsageError, with the nearest name, for a table, a part or a key that does not exist."""
    table, _, key = dotted.rpartition(".")
    place: Any = tables
    known: Mapping[str, Option]
    if not table:
        likely = next((table for table in TABLES if key in find_keys({}, table)), "training")
        raise UsageError(f"write the table before the key, as in {likely}.{dotted} ({', '.join(TABLES)})")
    if _PART.fullmatch(table):
        for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", table):
            place = _enter(place, name or int(number))
        scheme = CATALOGUE.find(place.get("scheme"))
        known = {} if scheme is None else options_of(scheme)
        if key in ("scheme", "schemes"):
            place.clear()
        elif "scheme" not in place:
            raise UsageError(f"{table} has several schemes; say which, as in {table}.schemes[0].{key}")
        elif known and key not in known:
            raise UsageError(describe_unknown(f"option of {place['scheme']}", key, known))
    else:
        places = ("position.transform_options", *(f"position.{side}" for side in SIDES))
        if table not in (*TABLES, *places):
            raise UsageError(describe_unknown("table", table, (*TABLES, *sorted(places))))
        known = {} if table == "position.transform_options" else find_keys(tables, table)
        is_side = table == "position" and key in SIDES
        # Where the scheme or the corpus of a table is unknown, none of its keys can be judged.
        selector = _get_selector(tables, table) if table == "data" or table.startswith("position") else None
        catalogue: Catalogue[Any] = CORPORA if table == "data" else CATALOGUE
        is_unknown = selector is not None and catalogue.find(selector) is None
        if known and key not in known and not is_side and not is_unknown:
            raise UsageError(describe_unknown(f"key in [{table}]", key, known))
        for name in table.split("."):
            place.setdefault(name, {})
            if isinstance(place[name], str) and name in SIDES:
                place[name] = {"scheme": place[name]}
            place = place[name]
            if not isinstance(place, dict):
                raise UsageError(f"{table} is {show_value(place)}, and must be a table")
    type_ = known[key].type if key in known else Any
    value = convert(parse(value, type_) if written else value, type_)
    # The other keys of a table belong to its scheme, corpus or preset, and go when that is another one.
    if key in _SELECTORS.get(table.split(".")[0], ()) and place.get(key) != value:
        for other in [name for name in place if name not in _KEPT]:
            del place[other]
    place[key] = value


def _enter(place: Any, name: str | int) -> Any:
    """Return what stands under a key or an index; the name of a scheme there becomes its table ``{scheme = ...}``."""
    is_there = name in place if isinstance(place, dict) else isinstance(place, list) and name in range(len(place))
    if not is_there:
        raise UsageError(f"there is no {name!r} in {show_value(place)}")
    if isinstance(place[name], tuple):
        place[name] = list(place[name])
    if isinstance(place[name], str):
        place[name] = {"scheme": place[name]}
    return place[name]


def inherit_tables(tables: RecipeTables, overrides: Mapping[str, Any]) -> RecipeTables:
    """Return the tables of a recipe with what they leave out of [model], [position] and [tokenizer] filled in.

    The values are those of the folder ``training.begin_from``, which ``overrides`` may set. A recipe that leaves
    nothing out, such as the resolved one of a run, is returned as it is, and nothing is opened. Raises CheckpointError
    if the folder has no model of this project.
    """
    begin_from = overrides.get("training.begin_from", tables.get("training", {}).get("begin_from"))
    if not isinstance(begin_from, (str, Path)) or begin_from == "none":
        return tables
    tables, begin_from = dict(tables), Path(make_absolute(begin_from, Path.cwd()))
    model, position = tables.get("model", {}), tables.get("position", {})
    # TOML has no value for fields that are None by default.
    is_complete = all(name in model for name, option in list_model_options().items() if option.default is not None)
    if "preset" not in model and not is_complete:
        tables["model"] = {**make_model_table(read_model_config(begin_from)), **model}
    if not {"scheme", *SIDES} & position.keys():
        tables["position"] = {**make_position_table(read_model_config(begin_from)), **position}
    if not tables.get("tokenizer") and not any(key.startswith("tokenizer.") for key in overrides):
        folder = find_tokenizer_folder(begin_from)
        target = {"target_name": str(folder / "target")} if (folder / "target" / TOKENIZER).is_file() else {}
        tables["tokenizer"] = {"name": str(folder), **target}
    return tables


def require_model_folder(begin_from: Path) -> Path:
    """Find the folder that holds the model: the folder itself, or the last checkpoint of a run that is not finished.

    Raises CheckpointError if there is none.
    """
    model_folder = find_model_folder(begin_from)
    if model_folder is None:
        what = f"a folder without {CONFIG}" if begin_from.is_dir() else "a file" if begin_from.exists() else "not there"
        raise CheckpointError(f"training.begin_from: {begin_from} holds no model; it is {what}")
    return model_folder


def read_model_config(begin_from: Path) -> TransformerConfig:
    """Read the configuration of the model to begin from. Raises CheckpointError for a model of another project."""
    from clockhands.runs.opening import read_clockhands_config  # late: few recipes begin from a model

    folder = require_model_folder(begin_from)
    try:
        return read_clockhands_config(folder)[1]
    except CheckpointError as fault:
        raise CheckpointError(f"training.begin_from: {fault}") from fault


def find_tokenizer_folder(begin_from: Path) -> Path:
    """Find the folder of the tokenizer; of a checkpoint, that of its run. Raises CheckpointError if there is none."""
    for folder in (begin_from, begin_from.parent.parent) if begin_from.parent.name == "checkpoints" else (begin_from,):
        if (folder / TOKENIZER).is_file():
            return folder
    raise CheckpointError(f"training.begin_from: {begin_from} holds no tokenizer; give a run, or save one there")


def make_model_table(config: TransformerConfig) -> dict[str, Any]:
    """Make the table [model] of a recipe from the configuration of a model."""
    return {key: value for key, value in config.to_dict().items() if key not in (*SIDES, *FROM_DATA)}


def make_position_table(config: TransformerConfig) -> dict[str, Any]:
    """Make the table [position] of a recipe: one for all sides if they agree, else one for each side."""
    made: dict[str, Any] = {}
    for side in config.sides:
        if side != "cross" or config.cross != PositionConfig():
            table = config.get_position_config(side).to_dict()
            options = table.pop("options")  # which a recipe has beside the fields of a side
            made[side] = {**{key: value for key, value in table.items() if value not in (None, {})}, **options}
    common = made[config.stack_sides[0]]
    if any(made[side] != common for side in config.stack_sides):
        return made
    return {**common, **({"cross": made["cross"]} if "cross" in made else {})}
