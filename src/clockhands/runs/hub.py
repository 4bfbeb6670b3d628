"""Upload a trained run to the Hugging Face hub, as a model that transformers opens there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clockhands.errors import CheckpointError, ClockhandsError, UsageError
from clockhands.pretrained import CONFIG, LOADING_CODE
from clockhands.reading import read_json
from clockhands.runs.card import make_card
from clockhands.runs.export import LOADER, add_auto_map
from clockhands.runs.folder import CARD, is_generated_card
from clockhands.runs.run import Run, open_run

__all__ = ["collect_files", "push_run"]

UPLOADED = (
    *("model.safetensors", "model-*.safetensors", "model.safetensors.index.json", "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "target/*"),
    *("curves.svg", "metrics.jsonl"),
)
"""Files of a run that are uploaded as they are. The recipe is not among them: it names files of the user's machine."""


def push_run(
    run: str | Path, name: str, *, private: bool = False, revision: str | None = None, message: str | None = None
) -> str:
    """Upload a finished run to the hub as the model ``name`` (USER/MODEL), in one commit; return its address.

    The repository is made if it is missing; with ``private`` it is a private one. ``revision``: a branch that exists.
    Raises UsageError for a name that the hub does not allow, CheckpointError for a run that is not finished or cannot
    be opened, ClockhandsError if the hub cannot be reached or refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    refuse_name(name)
    files = collect_files(run)
    _refuse_offline()
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

    A run of an older version has no model card and no loading code: they are made here, and the folder stays as it is.
    Raises CheckpointError if the run is not finished, or cannot be opened.
    """
    opened = Run.from_folder(run)
    if not opened.finished:
        raise CheckpointError(f"{run} is not trained to its end; continue with: clockhands train --resume {run}")
    model = open_run(opened, device="cpu").model
    config: dict[str, Any] = read_json(opened.path / CONFIG)
    card = opened.path / CARD
    is_own_card = _lies_in(card, opened.path) and not is_generated_card(card)
    files: dict[str, Path | bytes] = {
        CARD: card if is_own_card else make_card(opened).encode(),
        CONFIG: (json.dumps(add_auto_map(config, model), indent=2, sort_keys=True) + "\n").encode(),
        LOADING_CODE: LOADER.encode(),
    }
    return files | {path.relative_to(opened.path).as_posix(): path for path in _list_uploaded(opened.path)}


def _list_uploaded(folder: Path) -> Iterator[Path]:
    """Yield the files of a run that are uploaded as they are."""
    for pattern in UPLOADED:
        yield from sorted(path for path in folder.glob(pattern) if _lies_in(path, folder))


def _lies_in(path: Path, folder: Path) -> bool:
    """Return whether a file itself lies in a folder: no link on the way is followed, which may lead anywhere."""
    return path.is_file() and path.resolve() == folder.resolve() / path.relative_to(folder)


def refuse_name(name: str) -> None:
    """Raise UsageError for a name that the hub does not allow."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as fault:
        raise UsageError(f"{name!r} is no name of a model on the hub: write USER/MODEL, such as me/numbers") from fault


def _refuse_offline() -> None:
    """Raise UsageError if the environment says that the hub must not be reached."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        name = "HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE"
        raise UsageError(f"{name} is set, so that nothing may reach the hub; unset it to upload")


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
