"""Export of a trained model into the folder of its run, as a Hugging Face model that plain transformers opens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from clockhands.errors import CheckpointError
from clockhands.files import apply_umask, write_text
from clockhands.pretrained import CONFIG, LOADING_CODE, OWN_AUTO_MAP
from clockhands.reading import read_json
from clockhands.runs.folder import EXPORTING

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["LOADER", "add_auto_map", "export_model"]

LOADER = '''"""Lets transformers open the model in this folder. It needs the package clockhands."""

from clockhands.auto import ClockhandsConfig, ClockhandsForCausalLM, ClockhandsForMaskedLM, ClockhandsForSeq2SeqLM

__all__ = ["ClockhandsConfig", "ClockhandsForCausalLM", "ClockhandsForMaskedLM", "ClockhandsForSeq2SeqLM"]
'''
"""The text of ``modeling_clockhands.py``."""


def export_model(folder: Path, model: PreTrainedModel, weights: Mapping[str, Any] | None = None) -> None:
    """Save the model into the run folder, ``config.json`` last: a folder with that file has all the others.

    Raises CheckpointError if it cannot be written. A former model stays unless the files cannot be moved; then the
    folder has no ``config.json`` until the next export.
    """
    staging = folder / EXPORTING
    try:
        shutil.rmtree(staging, ignore_errors=True)
        model.save_pretrained(staging, state_dict=None if weights is None else dict(weights))
        _add_loading_code(staging, model)
        apply_umask(staging)
        # Without config.json no model is opened from the folder: never a mixture of the former files and the new ones.
        (folder / CONFIG).unlink(missing_ok=True)
        for file in sorted(staging.iterdir(), key=lambda file: file.name == CONFIG):
            file.replace(folder / file.name)
    except (OSError, RuntimeError, SafetensorError) as fault:
        raise CheckpointError(f"the model cannot be saved in {folder}: {fault}; its checkpoints are intact") from fault
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _add_loading_code(folder: Path, model: PreTrainedModel) -> None:
    """Make a saved model one that transformers opens with ``trust_remote_code=True``, without an import before.

    A model of another project is left as it is.
    """
    if getattr(model, "auto_class", None) is None:
        return
    write_text(folder / LOADING_CODE, LOADER)
    config = add_auto_map(read_json(folder / CONFIG), model)
    write_text(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")


def add_auto_map(config: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return the content of ``config.json`` with the classes by which transformers opens a model of this project."""
    names = ("AutoConfig", model.auto_class.__name__)
    return {**config, "auto_map": {name: OWN_AUTO_MAP[name] for name in names}}
