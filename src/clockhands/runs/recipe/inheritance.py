"""What a recipe takes over from the run that its training begins from, wherever it says nothing itself.

Of a run, or of any Hugging Face folder of this project: ``config.json`` says what the model is; the tokenizer is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.model.config import TransformerConfig
from clockhands.model.position_config import PositionConfig
from clockhands.runs import checkpoints
from clockhands.runs.recipe.keys import FROM_DATA, SIDES, Tables, make_absolute, model_options

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"


def inherit(tables: Tables, overrides: Mapping[str, Any]) -> Tables:
    """Return the tables with what is missing of [model], [position] and [tokenizer] as ``training.begin_from`` has it.

    A recipe that says all, such as the resolved one of a run, is left as it is, and nothing is opened.
    Raises CheckpointError if there is no model of this project.
    """
    training = tables.get("training")
    given = training.get("begin_from") if isinstance(training, Mapping) else None
    begun = overrides.get("training.begin_from", given)
    if not isinstance(begun, (str, Path)) or begun == "none":
        return tables
    tables, begun = dict(tables), Path(make_absolute(begun, Path.cwd()))
    model, position = tables.get("model", {}), tables.get("position", {})
    if isinstance(model, Mapping) and "preset" not in model and not _says_all(model):
        tables["model"] = {**make_model_table(read_architecture(begun)), **model}
    if isinstance(position, Mapping) and not {"scheme", *SIDES} & position.keys():
        tables["position"] = {**make_position_table(read_architecture(begun)), **position}
    if not tables.get("tokenizer") and not any(key.startswith("tokenizer.") for key in overrides):
        tables["tokenizer"] = make_tokenizer_table(begun)
    return tables


def find_model_folder(begun: Path) -> Path:
    """Find where the model lies: in the folder itself, or, of a run that is not finished, in its last checkpoint."""
    folders = [begun, *checkpoints.list_saved(begun / "checkpoints")[::-1]]
    found = next((folder for folder in folders if (folder / CONFIG).is_file()), None)
    if found is None:
        what = f"a folder without {CONFIG}" if begun.is_dir() else "a file" if begun.exists() else "not there"
        raise CheckpointError(f"training.begin_from: {begun} holds no model; it is {what}")
    return found


def read_architecture(begun: Path) -> TransformerConfig:
    """Read which model it is. Raises CheckpointError if it is not one of this project."""
    from clockhands.runs import read_clockhands_config

    folder = find_model_folder(begun)
    try:
        return read_clockhands_config(folder)[1]
    except CheckpointError as fault:
        raise CheckpointError(f"training.begin_from: {fault}") from fault


def find_tokenizer_folder(begun: Path) -> Path:
    """Find where its tokenizer lies; that of a checkpoint in its run. Raises CheckpointError if there is none."""
    for folder in (begun, begun.parent.parent) if begun.parent.name == "checkpoints" else (begun,):
        if (folder / TOKENIZER).is_file():
            return folder
    raise CheckpointError(f"training.begin_from: {begun} holds no tokenizer; give a run, or save the tokenizer there")


def make_model_table(config: TransformerConfig) -> dict[str, Any]:
    """Make [model] of a recipe."""
    return {key: value for key, value in config.to_dict().items() if key not in (*SIDES, *FROM_DATA)}


def make_position_table(config: TransformerConfig) -> dict[str, Any]:
    """Make [position] of a recipe: one table where the sides agree, else one for each."""
    table = config.to_dict()
    own = [side for side in config.sides if side != "cross"]
    cross = {"cross": _loose(table["cross"])} if "cross" in config.sides and config.cross != PositionConfig() else {}
    if all(table[side] == table[own[0]] for side in own):
        return {**_loose(table[own[0]]), **cross}
    return {**{side: _loose(table[side]) for side in own}, **cross}


def make_tokenizer_table(begun: Path) -> dict[str, Any]:
    """Make [tokenizer] of a recipe: the one that lies there, by name."""
    folder = find_tokenizer_folder(begun)
    target = {"target_name": str(folder / "target")} if (folder / "target" / TOKENIZER).is_file() else {}
    return {"name": str(folder), **target}


def _loose(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a position with its scheme's options beside its own fields, as a recipe has them."""
    own = {key: value for key, value in table.items() if key != "options" and value not in (None, {})}
    return {**own, **table["options"]}


def _says_all(model: Mapping[str, Any]) -> bool:
    """Return whether every field is given that has a value by default (TOML has none for the others)."""
    return all(name in model for name, option in model_options().items() if option.default is not None)
