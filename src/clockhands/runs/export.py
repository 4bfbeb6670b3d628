"""Export a trained model: its files, and the card that tells how it was trained."""

from __future__ import annotations

import json
import math
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
from safetensors import SafetensorError

from clockhands import __version__
from clockhands.errors import CheckpointError, ClockhandsError, ClockhandsWarning, DataError, UsageError
from clockhands.files import apply_umask, write_text
from clockhands.findings import Findings
from clockhands.model.position_config import Architecture
from clockhands.pretrained import CONFIG, LOADING_CODE, OWN_AUTO_MAP
from clockhands.reading import read_json
from clockhands.runs.folder import CARD, CARD_MARK, EXPORTING, is_generated_card
from clockhands.runs.recipe.recipe import make_writable
from clockhands.runs.run import ACTIONS, COMMANDS, Run, open_run
from clockhands.streams import quote_code

if TYPE_CHECKING:
    from transformers import PreTrainedModel


FINDINGS = "findings.json"
"""Where ``inspect --out RUN``, ``evaluate --out`` and the tour put what they measured."""
PIPELINE_TAGS = {"encoder-decoder": "translation", "decoder": "text-generation", "encoder": "fill-mask"}
"""The hub's ``pipeline_tag`` for each architecture: what its models are used for."""
HIGHEST_LOSS = 50.0
"""The loss up to which e^loss is a number that says something; far above it, it does not fit into a float."""


def write_card(run: Run) -> Path | None:
    """Write the model card of a run with an exported model into its folder; return its path.

    A card that somebody else wrote, or whose mark was taken out, stays as it is; then None is returned.
    """
    path = run.path / CARD
    if path.exists() and not is_generated_card(path):
        return None
    return write_text(path, make_card(run))


def describe_perplexity(loss: float) -> str:
    """Return the perplexity of a loss in nats per token as text, e^loss; of a loss that is too large, a bound."""
    return f"perplexity {math.exp(loss):,.1f}" if loss < HIGHEST_LOSS else f"perplexity above e^{HIGHEST_LOSS:.0f}"


def make_card(run: Run) -> str:
    """Return the model card of a run: Markdown, with the metadata of the Hugging Face hub in front.

    It names no path and no time, so that the same run has the same card. Raises DataError or ConfigError for a recipe
    that cannot be read, CheckpointError for tokenizers that are not those of the model. Findings that cannot be read
    are left out with a ClockhandsWarning: the training that ends here is whole.
    """
    from huggingface_hub import ModelCardData

    recipe, record = run.recipe, run.record
    architecture = recipe.model.architecture
    positions = {side: recipe.model.get_position_config(side) for side in recipe.model.sides}
    # Cross-attention usually has no scheme of its own, which is no tag that anybody looks for beside the others.
    schemes = sorted({position.scheme for position in positions.values()} - {"none"}) or ["none"]
    tags = ["clockhands", "positional-encoding", *schemes]
    data = ModelCardData(library_name="transformers", pipeline_tag=PIPELINE_TAGS[architecture], tags=tags)
    rows = ["| side | scheme | options |", "|---|---|---|"]
    for side, position in positions.items():
        options = ", ".join(quote_code(f"{name} = {value!r}") for name, value in position.options.items()) or "defaults"
        rows.append(f"| {side} | {position.scheme} | {options} |")
    kept = {name: recipe.tables[name] for name in ("tokenizer", "model", "position", "batches", "training")}
    for table, key in (("tokenizer", "name"), ("training", "begin_from")):
        if kept[table].get(key) is not None:
            kept[table] = {**kept[table], key: Path(str(kept[table][key])).name}
    findings = []
    try:
        if (run.path / FINDINGS).is_file():
            known = Findings.load(run.path / FINDINGS)
            lines = [f"- **{finding.question}** {finding.verdict}" for finding in known if finding.verdict]
            measured = f"Measured by `{' '.join(known.command.split()[:2])}`:"
            findings = ["## Findings", measured, "\n".join(lines)] if lines else []
    except DataError as fault:
        warnings.warn(f"the model card leaves the findings out: {fault}", ClockhandsWarning, stacklevel=2)
    parts = [
        f"---\n{data.to_yaml()}\n---",
        CARD_MARK,
        f"# {run.path.resolve().name}",
        f"A Transformer ({architecture}) with {record.get('parameters', 0):,} parameters that {ACTIONS[architecture]}, "
        f"trained by clockhands {record.get('clockhands', __version__)}.",
        "## Positions",
        "\n".join(rows),
        "## Training",
        _describe_training(run),
        *findings,
        "## Use",
        _write_use(architecture, shared=run.tokenizers.shared),
        "## Settings",
        "The recipe, without the paths of the text:",
        f"```toml\n{tomli_w.dumps(make_writable(kept))}```",
    ]
    return "\n\n".join(parts) + "\n"


def _describe_training(run: Run) -> str:
    step, losses = run.record.get("step", 0), run.validation_losses
    said = [f"Trained for {step:,} steps on the corpus *{run.recipe.corpus}* with seed {run.recipe.training.seed}."]
    if run.model_loss is not None:
        exported, loss = run.model_loss
        perplexity = f" ({describe_perplexity(loss)})" if loss < HIGHEST_LOSS else ""
        said.append(f"The validation loss after {exported:,} steps is {loss:.4f} nats per token{perplexity}.")
        best = min(losses, key=lambda step: (losses[step], step))
        if exported != step:
            said.append("The weights are those of that step.")
        elif best != exported:
            said.append(f"It was lowest after {best:,} steps: {losses[best]:.4f}.")
    elif losses:
        last = losses[max(losses)]
        said.append(f"The weights are the mean of checkpoints; the validation loss of the last was {last:.4f} "
                    "nats per token.")  # fmt: skip
    return " ".join(said)


def _write_use(architecture: Architecture, *, shared: bool) -> str:
    from clockhands.model.huggingface import MODEL_CLASSES

    auto_class, code = MODEL_CLASSES[architecture].auto_class.__name__, "trust_remote_code=True"
    target = f'target_tokenizer = AutoTokenizer.from_pretrained(folder, subfolder="target", {code})'
    lines = [
        f"```python\nfrom transformers import {auto_class}, AutoTokenizer\n",
        'folder = "."  # this folder, or its name on the hub; it needs the package clockhands',
        f"tokenizer = AutoTokenizer.from_pretrained(folder, {code})",
        *([] if shared else [target]),
        f"model = {auto_class}.from_pretrained(folder, {code})\n```",
    ]
    if architecture in COMMANDS:
        lines.append(f"\nOn the command line: `{COMMANDS[architecture].format('.')}`")
    return "\n".join(lines)


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
    ``message``: of the commit (default: one that says what is uploaded).
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
