"""What the controls do to the models of a page, as findings for every reader, with script or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clockhands import __version__
from clockhands.exploring.controls import UNTOUCHED
from clockhands.exploring.model_data import ExplorerModel
from clockhands.findings import Finding, Findings, Table

_LOUDNESS = ("position left out", "position ¼ as loud", "position ½ as loud", "position twice as loud",
             "position 4 times as loud")  # fmt: skip


def compose_findings(models: Sequence[ExplorerModel], command: str) -> Findings:
    """Return the findings of a page with these models."""
    live = [model for model in models if model.is_live]
    counted = [model for model in live if model.data["measured"]]
    items = [_find_untouched(counted)] if counted else []
    items += [_find_uncounted(model.data) for model in live if not model.data["measured"]]
    items += [_find_effects(model.data) for model in live if len(model.data["measured"]) > 1]
    items += [_find_recorded(model) for model in models if not model.is_live]
    title = "What word order is worth: models that run in this page" if live else "Where position enters a model"
    return Findings(
        title=title,
        items=tuple(items),
        facts={model.data["label"]: _describe(model.data) for model in models},
        signature=f"explore|models:{len(models)}|v:{__version__}",
        command=command,
    )


def _describe(data: dict[str, Any]) -> str:
    config = data["config"]
    if config["kind"] == "recorded":
        return f"{data['task']} {config['parameters']:,} parameters."
    scheme = data["schemes"]["encoder"]["name"]
    stacks = [str(count) for count in (config["encoderLayers"], config["decoderLayers"]) if count]
    layers = f"{' + '.join(stacks)} layers, d_model {config['dModel']}"
    return f"{data['task']}; {layers}, {config['parameters']:,} parameters, positions: {scheme}"


def _find_untouched(models: Sequence[ExplorerModel]) -> Finding:
    rows = []
    for model in models:
        untouched = model.data["measured"][0]
        rows.append((model.data["label"], untouched["right"], untouched["of"]))
    counts = "; ".join(f"{label}: {right} of {of}" for label, right, of in rows)
    return Finding(
        name="explore.untouched",
        question="How many held-out texts does each model get right?",
        verdict=f"{counts}.",
        table=Table.of(("model", "right", "of"), rows if len(rows) > 1 else []),
        method="Texts that training never showed. Of a translator those are right whose greedy translation equals the "
        "one right translation, letter by letter; of a language model those whose likeliest next token follows.",
    )


def _find_uncounted(data: dict[str, Any]) -> Finding:
    return Finding(
        name=f"explore.live.{data['id']}",
        question=f"What runs here of {data['label']}?",
        verdict=f"{data['task']}: {_describe(data).split('; ', 1)[1]}. It runs whole, with weights in half precision.",
        method="A model of another project, converted to one of Clockhands, which computes the same logits. Nothing is "
        "counted over held-out texts, because its training may have seen any.",
    )


def _find_recorded(model: ExplorerModel) -> Finding:
    """Say where position enters, and how far back the heads of each layer look in the sentences."""
    data = model.data
    rows = [
        (sentence["text"], layer + 1, *(round(value, 3) for value in _summarise(weights_HTT)))
        for index, sentence in enumerate(data["sentences"])
        for layer, weights_HTT in enumerate(model.read_array(f"sentence.{index}"))
    ]
    return Finding(
        name=f"explore.recorded.{data['id']}",
        question=f"Where does position enter {data['label']}, and where does it attend?",
        verdict=f"{data['task']} {data['reason']}",
        table=Table.of(
            ("sentence", "layer", "mean distance in tokens", "to itself", "to the token before", "to the first"), rows
        ),
        method="The means over the heads of a layer and the tokens of a sentence, special ones included; the last "
        "three columns are shares of the attention weights.",
    )


def _summarise(weights_HTT: np.ndarray[Any, Any]) -> tuple[float, float, float, float]:
    """Return the mean distance of attention, and its shares for the token itself, the one before and the first."""
    length = weights_HTT.shape[-1]
    places = np.arange(length)
    distance = float((weights_HTT * np.abs(places[:, None] - places)).sum(-1).mean())
    own = float(np.trace(weights_HTT, axis1=1, axis2=2).mean() / length)
    before = float(np.trace(weights_HTT, offset=-1, axis1=1, axis2=2).mean() / length)
    return distance, own, before, float(weights_HTT[..., 0].mean())


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
        "The numbers tell what a change does to this trained model, not what a model trained with that change would "
        "learn. Confidence: the geometric mean of the probabilities of the tokens, the end token among them, and of "
        "that the mean over sentences.",
    )
