"""Export of a trained model into the folder of its run, as a Hugging Face model that plain transformers opens."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from clockhands.errors import CheckpointError, ClockhandsError, UsageError
from clockhands.files import apply_umask, write_text
from clockhands.pretrained import CONFIG, LOADING_CODE, OWN_AUTO_MAP
from clockhands.reading import read_json
from clockhands.runs.card import make_card
from clockhands.runs.folder import CARD, EXPORTING, is_generated_card
from clockhands.runs.run import Run, open_run

if TYPE_CHECKING:
    from transformers import PreTrainedModel

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
        auto_class = getattr(model, "auto_class", None)
        if auto_class is not None:  # one of this project, opened without an import before
            write_text(staging / LOADING_CODE, LOADER)
            names = ("AutoConfig", auto_class.__name__)
            config = {**read_json(staging / CONFIG), "auto_map": {name: OWN_AUTO_MAP[name] for name in names}}
            write_text(staging / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")
        apply_umask(staging)
        # Without config.json no model is opened from the folder: never a mixture of the former files and the new ones.
        (folder / CONFIG).unlink(missing_ok=True)
        for file in sorted(staging.iterdir(), key=lambda file: file.name == CONFIG):
            file.replace(folder / file.name)
    except (OSError, RuntimeError, SafetensorError) as fault:
        raise CheckpointError(f"the model cannot be saved in {folder}: {fault}; its checkpoints are intact") from fault
    finally:
        shutil.rmtree(staging, ignore_errors=True)


UPLOADED = (
    *(CARD, CONFIG, LOADING_CODE),
    *("model.safetensors", "model-*.safetensors", "model.safetensors.index.json", "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "target/*"),
    *("curves.svg", "metrics.jsonl"),
)
"""Files of a run that are uploaded as they are. The recipe is not among them: it names files of the user's machine."""


def push(
    run: str | Path, name: str, *, private: bool = False, revision: str | None = None, message: str | None = None
) -> str:
    """Upload a finished run to the hub as the model ``name`` (USER/MODEL), in one commit; return its address.

    The repository is made if it is missing; with ``private`` it is a private one. ``revision``: a branch that exists.
    Raises UsageError for a name that the hub does not allow, CheckpointError for a run that is not finished or cannot
    be opened, ClockhandsError if the hub cannot be reached or refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, constants

    refuse_name(name)
    files = collect_files(run)
    if constants.HF_HUB_OFFLINE:
        said = "HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE"
        raise UsageError(f"{said} is set, so that nothing may reach the hub; unset it to upload")
    api = HfApi(library_name="clockhands")
    operations = [CommitOperationAdd(path_in_repo=path, path_or_fileobj=content) for path, content in files.items()]
    try:
        # None leaves the visibility of a new repository to the hub: public, unless the organisation wants it private.
        # The full name has the user's own before it where the user gave the model's alone.
        repository = api.create_repo(name, private=private or None, exist_ok=True).repo_id
        # A repository that was there keeps the visibility that it had, and the hub does not say so.
        is_public = private and not api.model_info(repository).private
        if not is_public:
            title = message or f"Upload {Path(run).resolve().name}"
            api.create_commit(repository, operations, commit_message=title, revision=revision)
    except Exception as fault:
        raise ClockhandsError(_describe_refusal(name, fault)) from fault
    if is_public:
        raise UsageError(f"{repository} is there and public, so nothing was uploaded; make it private on the hub first")
    return f"{api.endpoint}/{repository}"


def collect_files(run: str | Path) -> dict[str, Path | bytes]:
    """Return what is uploaded of a run: for each path in the repository, a file or its content.

    The model card is made again, unless it is somebody's own: something may have been found since. Raises
    CheckpointError if the run is not finished, or cannot be opened.
    """
    opened = Run.from_folder(run)
    if not opened.finished:
        raise CheckpointError(f"{run} is not trained to its end; continue with: clockhands train --resume {run}")
    folder = open_run(opened, device="cpu").path
    # No link is followed, which may lead anywhere.
    uploaded: dict[str, Path | bytes] = {
        path.relative_to(folder).as_posix(): path
        for pattern in UPLOADED
        for path in sorted(folder.glob(pattern))
        if path.is_file() and path.resolve() == folder.resolve() / path.relative_to(folder)
    }
    is_own_card = CARD in uploaded and not is_generated_card(folder / CARD)
    return uploaded if is_own_card else {**uploaded, CARD: make_card(opened).encode()}


def refuse_name(name: str) -> None:
    """Raise UsageError for a name that the hub does not allow."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as fault:
        raise UsageError(f"{name!r} is no name of a model on the hub: write USER/MODEL, such as me/numbers") from fault


def _describe_refusal(name: str, fault: Exception) -> str:
    """Return one sentence on why an upload failed, and what to do."""
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    status = fault.response.status_code if isinstance(fault, HfHubHTTPError) and fault.response is not None else None
    if isinstance(fault, LocalTokenNotFoundError) or status == 401:
        return f"the hub does not know who uploads {name}: log in with `hf auth login`, or set HF_TOKEN"
    if status == 403:
        return f"the hub does not let this user write to {name}: use a token that may write, or another name"
    reason = str(fault).strip().partition("\n")[0] or type(fault).__name__
    # huggingface_hub 1 talks through httpx and huggingface_hub 2 through httpx2; the class has one name in both.
    is_unreachable = any(kind.__name__ == "TransportError" for kind in type(fault).__mro__)
    if is_unreachable or isinstance(fault, (ConnectionError, TimeoutError)):
        return f"the hub cannot be reached ({reason}); nothing was uploaded: try again when the network is there"
    return f"the hub refused {name}: {reason}"
