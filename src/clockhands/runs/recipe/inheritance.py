"""Inheritance: what a recipe takes over from the run that its training begins from (``training.begin_from``).

Whatever the recipe leaves out of [model], [position] and [tokenizer] is taken from that run, or from any Hugging Face
folder with a model of this project: the model from its ``config.json``, and its tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.model.config import TransformerConfig
from clockhands.model.config_fields import SIDES
from clockhands.model.position_config import PositionConfig
from clockhands.pretrained import CONFIG, TOKENIZER
from clockhands.runs.folder import find_model_folder
from clockhands.runs.opening import read_clockhands_config
from clockhands.runs.recipe.tables import FROM_DATA, Tables, list_model_options, make_absolute


def inherit_tables(tables: Tables, overrides: Mapping[str, Any]) -> Tables:
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
    raise CheckpointError(
        f"training.begin_from: {begin_from} holds no tokenizer; give a run, or save the tokenizer there"
    )


def make_model_table(config: TransformerConfig) -> dict[str, Any]:
    """Make the table [model] of a recipe from the configuration of a model."""
    return {key: value for key, value in config.to_dict().items() if key not in (*SIDES, *FROM_DATA)}


def make_position_table(config: TransformerConfig) -> dict[str, Any]:
    """Make the table [position] of a recipe: one for all sides if they agree, else one for each side."""
    table = config.to_dict()
    sides = config.stack_sides
    cross = (
        {"cross": _flatten_options(table["cross"])}
        if "cross" in config.sides and config.cross != PositionConfig()
        else {}
    )
    if all(table[side] == table[sides[0]] for side in sides):
        return {**_flatten_options(table[sides[0]]), **cross}
    return {**{side: _flatten_options(table[side]) for side in sides}, **cross}


def _flatten_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a side as a recipe has it: the options of its scheme beside its own fields."""
    own = {key: value for key, value in table.items() if key != "options" and value not in (None, {})}
    return {**own, **table["options"]}
