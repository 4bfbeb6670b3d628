"""Opening a trained run: its model and what reads and writes its text.

A run folder is a Hugging Face model folder (``config.json``, ``model.safetensors``, tokenizer files) that also holds
the resolved ``recipe.toml``, ``metrics.jsonl`` and the curves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clockhands.data import Tokenizers
from clockhands.errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TASKS = {
    "encoder-decoder": "translates",
    "decoder": "continues text",
    "encoder": "fills in masked words",
}


@dataclass(frozen=True)
class Opened:
    """A model in evaluation mode with its tokenizers."""

    model: PreTrainedModel
    tokenizers: Tokenizers
    path: Path

    @property
    def kind(self) -> str:
        """``encoder-decoder``, ``decoder`` or ``encoder``."""
        if self.model.config.is_encoder_decoder:
            return "encoder-decoder"
        return "decoder" if self.model.can_generate() else "encoder"

    def require(self, kind: str, verb: str) -> None:
        """Raise UsageError unless the model is of this kind."""
        if self.kind != kind:
            raise UsageError(
                f"cannot {verb} with {self.path}: the model there {TASKS[self.kind]}; this needs one that {TASKS[kind]}"
            )


def open_run(run: str | Path | Opened | Any, *, device: str | None = None, dtype: str | torch.dtype = "auto") -> Opened:
    """Open a run by its folder, or by anything with a ``path`` (what training returns).

    ``device``: ``cpu``, ``cuda``, ...; by default the GPU if there is one. Raises CheckpointError if the folder is not
    a run or cannot be read.
    """
    if isinstance(run, Opened):
        return run
    folder = Path(getattr(run, "path", run))
    _look(folder)
    import clockhands.model.huggingface as face

    classes = {
        "ClockhandsForSeq2SeqLM": face.ClockhandsForSeq2SeqLM,
        "ClockhandsForCausalLM": face.ClockhandsForCausalLM,
        "ClockhandsForMaskedLM": face.ClockhandsForMaskedLM,
    }
    architecture = _architecture(folder)
    if architecture not in classes:
        raise CheckpointError(
            f"{folder} holds a {architecture}, not a model of this project; `clockhands inspect` and "
            f"`clockhands check` open any Hugging Face checkpoint"
        )
    try:
        model: PreTrainedModel = classes[architecture].from_pretrained(folder, dtype=dtype, local_files_only=True)
    except (OSError, RuntimeError, ValueError, KeyError) as fault:
        raise CheckpointError(f"cannot open the model in {folder}: {str(fault).splitlines()[0]}") from fault
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Opened(model.to(chosen).eval(), Tokenizers.load(folder), folder)  # type: ignore[arg-type]


def _look(folder: Path) -> None:
    if not folder.exists():
        raise CheckpointError(f"there is no run {folder}; `clockhands train` makes one")
    if not (folder / "config.json").is_file():
        found = "a file" if folder.is_file() else "a folder without config.json"
        raise CheckpointError(f"{folder} is no finished run: it is {found}")


def _architecture(folder: Path) -> str:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf8"))
        return str((config.get("architectures") or ["model of unknown class"])[0])
    except (OSError, ValueError, AttributeError) as fault:
        raise CheckpointError(f"cannot read {folder / 'config.json'}: {fault}") from fault
