"""Measure what the answers tell of texts longer than the trained ones, and keep it in docs/studies/extending.json.

    python docs/studies/extending.py FOLDER [longer-yarn] [longer-reach] [longer-table] [longer-masked] [longer-grid]

FOLDER holds the models of recipes/facts.toml, facts-windows.toml and facts-table.toml, and one that fills in masked
tokens; what is missing is trained there first, about two minutes of one core each. Everything else takes about a
minute. A verdict is *more* or *less* where the interval of a difference leaves out 0, and *undecided* where it does
not; texts are the sample.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from extending_grid import measure_grid

from clockhands.comparison.simultaneous import compare_with_baseline
from clockhands.data import open_corpus
from clockhands.extension import Method, Tuning, apply, choose_lengths, encode_text, list_methods, measure, tune
from clockhands.extension.drift import measure_drift, measure_losses
from clockhands.extension.methods import find_rope, make_longrope
from clockhands.extension.signature import hash_weights
from clockhands.extension.text import cut_texts, split_stream
from clockhands.files import write_text
from clockhands.runs import LanguageModel, Run, open_language_model
from clockhands.training import train

HERE = Path(__file__).parent
KEPT = HERE / "extending.json"
RECIPES = HERE.parents[1] / "recipes"
FACTOR, TEXTS, SHORT_TEXTS, STEPS = 4, 48, 256, 200
MASKED = {
    "model.kind": "encoder", "model.encoder_layers": 2, "data.asked": 0.9, "training.max_steps": 1500,
    "training.eval_steps": 10_000,
}  # fmt: skip
"""What makes a model that fills in masked tokens of facts-table.toml."""


def open_model(
    folder: Path, recipe: str, name: str = "", overrides: dict[str, Any] | None = None
) -> tuple[LanguageModel, np.ndarray]:
    """Open the model of a recipe, trained where it is missing, with the tokens of its test split.

    ``name``: of its folder, where ``overrides`` change the recipe.
    """
    run = folder / (name or recipe)
    if not (run / "config.json").is_file():
        train(RECIPES / f"{recipe}.toml", run, overrides or {}, overwrite=True, draw=False, progress=True)
    known = Run.from_folder(run).recipe
    model = open_language_model(run, device="cpu", masked=True)
    return model, encode_text(model, open_corpus(known.corpus, **known.corpus_options).documents("test"))


def measure_yarn(folder: Path) -> dict[str, Any]:
    """Measure what YaRN costs on texts of the trained length, and its two halves alone."""
    model, stream = open_model(folder, "facts")
    trained, rope = int(model.trained_length or 0), find_rope(model)
    assert rope is not None
    yarn = {"spectrum": "yarn", "factor": float(FACTOR), "original_length": trained}
    ones = (1.0,) * (rope[0] // 2)
    rivals = {
        "yarn": Method("yarn", "", yarn),
        "frequencies": Method("frequencies", "", {**yarn, "attention_factor": 1.0}),
        "temperature": make_longrope("temperature", "", ones, trained, FACTOR, 0.1 * math.log(FACTOR) + 1),
    }
    texts_NS = cut_texts(stream, trained, trained - 1, SHORT_TEXTS, model.start_ids)
    losses = {}
    for name, method in {"none": Method("none", ""), **rivals}.items():
        with apply(model, method) as laid:
            losses[name] = measure_losses(laid, texts_NS, trained - 1)[:, None]
    against = {"yarn": "none", "frequencies": "none", "temperature": "none"}
    against |= {"frequencies over temperature": "temperature", "temperature beside frequencies": "frequencies"}
    ours = [losses["frequencies" if " over " in name else "yarn" if " beside " in name else name] for name in against]
    costs = compare_with_baseline(ours, [losses[name] for name in against.values()])
    kept = {"loss": float(losses["none"].mean()), "texts": len(texts_NS), "weights": hash_weights(model)}
    for name, cost in zip(against, costs, strict=True):
        kept |= _tell(name, cost)
        kept[f"{name}, %"] = 100 * cost.value / kept["loss"]
    return kept


def measure_reach(folder: Path) -> dict[str, Any]:
    """Measure how long a text two models read as they are."""
    kept: dict[str, Any] = {}
    for name, recipe in (("rope", "facts"), ("windows", "facts-windows")):
        model, stream = open_model(folder, recipe)
        trained = int(model.trained_length or 0)
        lengths = choose_lengths(trained, 8 * trained)
        found = measure(model, stream, lengths, trained, texts=TEXTS, items=100)
        kept[f"{name}, usable"] = found.usable.length
        kept[f"{name}, trained"] = trained
        kept[f"{name}, learned"] = ", ".join(found.usable.learned)
        kept[f"{name}, weights"] = hash_weights(model)
        for rung in found.usable.rungs:
            if rung.length > trained and rung.drift is not None:
                kept |= _tell(f"{name}, {rung.length // trained}x", rung.drift)
            for task, gap in rung.ranks.items():
                kept |= _tell(f"{name}, {task}, {rung.length / trained:g}x", gap)
        for task, ranks_NR in found.retrieval.ranks.items():
            for length, rank in zip(lengths, ranks_NR.mean(0), strict=True):
                kept[f"{name}, rank of {task}, {length / trained:g}x"] = None if np.isnan(rank) else float(rank)
    return kept


def measure_table(folder: Path) -> dict[str, Any]:
    """Measure what a table stretched to four times its rows loses on the same tokens, untrained and trained on."""
    return _measure_stretched(*open_model(folder, "facts-table"), texts=TEXTS)


def measure_masked(folder: Path) -> dict[str, Any]:
    """Measure the same of an encoder with such a table, by the loss of masked tokens, of which a text has few."""
    return _measure_stretched(*open_model(folder, "facts-table", "facts-masked", MASKED), texts=4 * TEXTS)


def _measure_stretched(model: LanguageModel, stream: np.ndarray, texts: int) -> dict[str, Any]:
    trained = int(model.trained_length or 0)
    longest = FACTOR * trained
    parts = split_stream(stream, 2)
    tail = trained // 4
    kept: dict[str, Any] = {"rows": trained, "longer": longest, "texts": texts, "weights": hash_weights(model)}
    before_NS = cut_texts(parts[1], longest, tail, texts, model.start_ids)[:, -trained:]
    before_N = measure_losses(model, before_NS, tail)[:, None]
    kept["loss"] = float(before_N.mean())
    losses, trained_on = {}, {}
    stretched = {method.name: method for method in list_methods(model, trained, longest)[1:]}
    for name, method in stretched.items():
        with apply(model, method) as laid:
            losses[name] = measure_drift(laid, parts[1], [longest], tail=tail, texts=texts).losses_NR
    for name, length in (("interpolated", longest), ("held", trained)):  # held at its own length, it is a copy
        with apply(model, replace(stretched[name], rows=length)) as laid:
            tune(laid, parts[0], Tuning(STEPS, "full"), trained, length)
            texts_NS = cut_texts(parts[1], longest, tail, texts, model.start_ids)[:, -length:]
            trained_on[name] = measure_losses(laid, texts_NS, tail)[:, None]
    ours = [*losses.values(), trained_on["interpolated"]]
    changes = compare_with_baseline(ours, [before_N] * len(losses) + [trained_on["held"]])
    for name, change in zip([*losses, "interpolated, both trained"], changes, strict=True):
        kept |= _tell(name, change)
    kept["best"] = min(losses, key=lambda name: kept[name])
    return kept


def _tell(name: str, difference: Any) -> dict[str, Any]:
    """Return a difference with its interval and what it shows."""
    verdict = "more" if difference.low > 0 else "less" if difference.high < 0 else "undecided"
    low, high = float(difference.low), float(difference.high)
    return {name: float(difference.value), f"{name}, low": low, f"{name}, high": high, f"{name}, verdict": verdict}


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "longer-yarn": measure_yarn,
    "longer-reach": measure_reach,
    "longer-table": measure_table,
    "longer-masked": measure_masked,
    "longer-grid": lambda folder: measure_grid(),
}
"""What is measured, by the name under which answers tell it."""


def main() -> None:
    """Measure the parts that are named, or all, and keep them."""
    torch.set_num_threads(1)
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(PARTS)
    for name in names:
        kept = json.loads(KEPT.read_text("utf8")) if KEPT.is_file() else {}
        kept[name] = PARTS[name](folder)
        write_text(KEPT, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        print(name, json.dumps(kept[name], indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
