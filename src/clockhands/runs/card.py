"""Write the model card of a run: what the model is, how it was trained, what was found, how it is opened."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from clockhands import __version__
from clockhands.errors import ClockhandsWarning, DataError
from clockhands.files import write_text
from clockhands.findings import Findings
from clockhands.model.position_config import Architecture
from clockhands.runs.folder import CARD, CARD_MARK, is_generated_card
from clockhands.runs.run import ACTIONS, COMMANDS, Run
from clockhands.streams import quote_code

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
        *_list_findings(run.path / FINDINGS),
        "## Use",
        _write_use(architecture, shared=run.tokenizers.shared),
        "## Settings",
        "The recipe, without the paths of the text:",
        f"```toml\n{tomli_w.dumps(_drop_none(kept))}```",
    ]
    return "\n\n".join(parts) + "\n"


def _describe_training(run: Run) -> str:
    """Return a sentence with the steps and the seed, and one with the validation loss if there was a validation."""
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


def _list_findings(path: Path) -> list[str]:
    """Return a section with the sentence of each finding in a file of findings, or nothing if there is none."""
    try:
        findings = Findings.load(path) if path.is_file() else None
    except DataError as fault:
        warnings.warn(f"the model card leaves the findings out: {fault}", ClockhandsWarning, stacklevel=2)
        findings = None
    lines = [f"- **{finding.question}** {finding.verdict}" for finding in findings or () if finding.verdict]
    if findings is None or not lines:
        return []
    return ["## Findings", f"Measured by `{' '.join(findings.command.split()[:2])}`:", "\n".join(lines)]


def _write_use(architecture: Architecture, *, shared: bool) -> str:
    """Return the lines of Python and the command that open the model."""
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


def _drop_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table without the keys whose value is None, in the tables within it too."""
    return {
        key: _drop_none(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }
