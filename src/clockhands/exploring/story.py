"""What the controls do to the models of a page, as findings for every reader, with script or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clockhands import __version__
from clockhands.exploring.measuring import UNTOUCHED
from clockhands.exploring.model_data import ExplorerModel
from clockhands.findings import Finding, Findings, Table

__all__ = ["compose_findings"]

_LOUDNESS = ("position left out", "position ¼ as loud", "position ½ as loud", "position twice as loud",
             "position 4 times as loud")  # fmt: skip


def compose_findings(models: Sequence[ExplorerModel], command: str) -> Findings:
    """Return the findings of a page with these models."""
    items = [_find_untouched(models)]
    items += [_find_effects(model.data) for model in models if len(model.data["measured"]) > 1]
    return Findings(
        title="What word order is worth: models that run in this page",
        items=tuple(items),
        facts={model.data["label"]: _describe(model.data) for model in models},
        signature=f"explore|models:{len(models)}|v:{__version__}",
        command=command,
    )


def _describe(data: dict[str, Any]) -> str:
    config, scheme = data["config"], data["schemes"]["encoder"]["name"]
    layers = f"{config['encoderLayers']} + {config['decoderLayers']} layers, d_model {config['dModel']}"
    return f"{data['task']}; {layers}, {config['parameters']:,} parameters, positions: {scheme}"


def _find_untouched(models: Sequence[ExplorerModel]) -> Finding:
    rows = []
    for model in models:
        untouched = model.data["measured"][0]
        rows.append((model.data["label"], untouched["right"], untouched["of"]))
    counts = "; ".join(f"{label}: {right} of {of}" for label, right, of in rows)
    return Finding(
        name="explore.untouched",
        question="How many held-out sentences does each model get right?",
        verdict=f"{counts}.",
        table=Table.of(("model", "right", "of"), rows),
        method="Greedy translations that equal the one right translation, letter by letter; sentences that training "
        "never showed.",
    )


def _find_effects(data: dict[str, Any]) -> Finding:
    counts = {count["name"]: count for count in data["measured"]}
    before = counts[UNTOUCHED]
    columns = ("the encoder's positions", "right", "of", "confidence")
    loud = ", ".join(f"{name} {counts[name]['right']}" for name in _LOUDNESS)
    return Finding(
        name=f"explore.controls.{data['id']}",
        question=f"What does it do to {data['label']} when its positions are changed after training?",
        verdict=f"Of {before['of']} held-out sentences {before['right']} are right {UNTOUCHED}; {loud}.",
        value=before["right"],
        unit=f"of {before['of']} right",
        table=Table.of(columns, [(row["name"], row["right"], row["of"], row["confidence"]) for row in counts.values()]),
        method="Nothing is trained again: the encoder's input is changed and the same weights translate, greedily. "
        "Confidence: the geometric mean of the tokens' probabilities, the mean over sentences.",
    )
