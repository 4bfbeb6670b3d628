"""Opening a trained run: its model and what reads and writes its text.

A run folder is a Hugging Face model folder (``config.json``, ``model.safetensors``, tokenizer files) that also holds
the resolved ``recipe.toml``, ``metrics.jsonl`` and the curves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clockhands.data import Tokenizers
from clockhands.devices import open_device
from clockhands.errors import CheckpointError, UsageError, unknown
from clockhands.quiet import quiet, without_bars
from clockhands.schemes import CATALOGUE, options

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from clockhands.model.huggingface_config import ClockhandsConfig

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
        return str(self.model.config.core.kind)

    def require(self, kind: str, verb: str) -> None:
        """Raise UsageError unless the model is of this kind."""
        if self.kind != kind:
            raise UsageError(
                f"cannot {verb} with {self.path}: the model there {TASKS[self.kind]}; this needs one that {TASKS[kind]}"
            )


def open_run(
    run: str | Path | Opened | Any,
    *,
    device: str | None = None,
    dtype: str | torch.dtype = "auto",
    position: Mapping[str, Any] | None = None,
) -> Opened:
    """Open a run by its folder, or by anything with a ``path`` (what training returns).

    ``device``: ``cpu``, ``cuda``, ...; by default the GPU if there is one. ``position``: options of the model's schemes
    to change for this use, such as ``{"spectrum": "yarn", "factor": 4.0}`` to read longer texts. Raises
    CheckpointError if the folder is not a run or cannot be read, UsageError for an option that no scheme of it has and
    for a device that is not in this machine.
    """
    if isinstance(run, Opened):
        return run
    folder = Path(getattr(run, "path", run))
    chosen = open_device(device or ("cuda" if torch.cuda.is_available() else "cpu"), "device")
    model = open_model(folder, dtype=dtype, position=position)
    return Opened(model.to(chosen), Tokenizers.load(folder), folder)  # type: ignore[arg-type]


def open_model(
    folder: Path, *, dtype: str | torch.dtype = "auto", position: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """The model that was saved in a folder, in evaluation mode, on the CPU. Arguments and errors as ``open_run``."""
    if not (folder / "config.json").is_file():
        found = "a folder without config.json" if folder.is_dir() else "a file" if folder.exists() else "not there"
        raise CheckpointError(f"{folder} is no finished run: it is {found}; `clockhands train` makes one")
    from safetensors import SafetensorError

    import clockhands.model.huggingface as face

    faces = {
        "encoder-decoder": face.ClockhandsForSeq2SeqLM,
        "decoder": face.ClockhandsForCausalLM,
        "encoder": face.ClockhandsForMaskedLM,
    }
    try:
        config = _config(folder)
        if position:
            config = repositioned(config, position)
        with quiet("transformers"), without_bars():
            loaded: Any = faces[config.core.kind].from_pretrained(
                folder, config=config, dtype=dtype, local_files_only=True,
                ignore_mismatched_sizes=True, output_loading_info=True,
            )  # fmt: skip
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError) as fault:
        raise CheckpointError(f"cannot open the model in {folder}: {str(fault).splitlines()[0]}") from fault
    model: PreTrainedModel
    model, read = loaded
    _check_read(read, folder, bent=bool(position))
    return model.eval()


def _check_read(read: Mapping[str, Any], folder: Path, *, bent: bool) -> None:
    """Raise CheckpointError unless the weights are those of the configuration; ``bent`` positions may add some."""
    faults = [f"{name} has shape {list(there)}, not {list(wanted)}" for name, there, wanted in read["mismatched_keys"]]
    faults += [] if bent else [f"{name} is missing" for name in read["missing_keys"]]
    faults += [] if bent else [f"{name} has no place in it" for name in read["unexpected_keys"]]
    if faults:
        more = f", and {len(faults) - 1} more such" if len(faults) > 1 else ""
        raise CheckpointError(
            f"the weights in {folder} are not of the model that its config.json describes: {sorted(faults)[0]}{more}; "
            f"put back the two files of one run"
        )


def repositioned(config: ClockhandsConfig, changes: Mapping[str, Any]) -> ClockhandsConfig:
    """The configuration with options of its schemes changed, on every side whose scheme has them.

    Raises UsageError for an option that none has, ConfigError for a value that the scheme refuses.
    """
    core = config.core
    table = core.to_dict()
    known: set[str] = set()
    for side in core.sides:
        own = options(CATALOGUE[core.position(side).scheme])
        known |= set(own)
        table[side]["options"].update({key: value for key, value in changes.items() if key in own})
    strange = [key for key in changes if key not in known]
    if strange:
        names = ", ".join(sorted({core.position(side).scheme for side in core.sides}))
        if len(strange) == 1:
            raise UsageError(unknown(f"position option of this model ({names})", strange[0], known))
        raise UsageError(
            f"the positions of this model ({names}) have no options {', '.join(strange)}; "
            f"they have {', '.join(sorted(known)) or 'none'}"
        )
    return type(config)(**{**_own(config), "transformer": table})


def _own(config: ClockhandsConfig) -> dict[str, Any]:
    """What a configuration of ours is made of, besides the architecture."""
    names = ("label_smoothing", "smoothing", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    return {name: getattr(config, name) for name in names}


def _config(folder: Path) -> ClockhandsConfig:
    from transformers import PreTrainedConfig

    from clockhands.model.huggingface_config import ClockhandsConfig

    found, _ = PreTrainedConfig.get_config_dict(folder, local_files_only=True)
    kind = found.get("model_type")
    if kind != ClockhandsConfig.model_type:
        what = f"{folder} holds a model of type {kind!r}, not one of this project"
        what = f"{folder / 'config.json'} names no model type" if kind is None else what
        raise CheckpointError(f"{what}; `clockhands inspect` and `clockhands check` open any Hugging Face checkpoint")
    return ClockhandsConfig.from_dict(found)
