"""Measure what the answers tell of texts longer than the trained ones, and keep it in docs/studies/extending.json.

    python docs/tools/answers/extending.py FOLDER [longer-yarn] [longer-reach] [longer-temperature] ...

FOLDER holds five trainings each, with seeds and training texts of their own, of recipes/facts.toml, facts-windows.toml
and facts-table.toml, and of a model that fills in masked tokens; what is missing is trained there first, one or two
minutes of one core each. Everything else takes some minutes. A verdict is *more* or *less* where the interval of a
difference leaves out 0, and *undecided* where it does not; trainings and texts are both samples.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clockhands.comparison.plan import TEXT_SEED
from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.data import open_corpus
from clockhands.extension import Tuning, apply, choose_lengths, encode_text, list_methods, measure, tune
from clockhands.extension.archive import hash_weights
from clockhands.extension.measure import LengthMeasurement
from clockhands.extension.methods import Method, find_rope, make_longrope
from clockhands.extension.reading import cut_texts, measure_drift, measure_losses
from clockhands.files import write_text
from clockhands.models import LanguageModel, open_language_model
from clockhands.runs import Run
from clockhands.training import train

HERE = Path(__file__).parents[2] / "studies"
KEPT = HERE / "extending.json"
RECIPES = HERE.parents[1] / "recipes"
FACTOR, TEXTS, SHORT_TEXTS, STEPS, QUESTIONS = 4, 48, 256, 200, 400
SEEDS = range(5)
TEMPERED = range(11)
"""The seeds of the models that are read with a temperature: its effect is small."""
MASKED = {
    "model.kind": "encoder", "model.encoder_layers": 2, "data.asked": 0.9, "training.max_steps": 1500,
    "training.eval_steps": 10_000,
}  # fmt: skip
"""What makes a model that fills in masked tokens of facts-table.toml."""


def open_models(
    folder: Path, recipe: str, name: str = "", overrides: dict[str, Any] | None = None, seeds: Sequence[int] = SEEDS
) -> Iterator[tuple[LanguageModel, np.ndarray]]:
    """Open the models of a recipe, trained where they are missing, each with the tokens of the test split.

    ``name``: of their folders, where ``overrides`` change the recipe.
    """
    for seed in seeds:
        run = folder / f"{name or recipe}-{seed}"
        if not (run / "config.json").is_file():
            seeds = {"training.seed": seed, TEXT_SEED: seed}
            train(RECIPES / f"{recipe}.toml", run, {**(overrides or {}), **seeds}, overwrite=True, draw=False)
        known = Run.from_folder(run).recipe
        model = open_language_model(run, device="cpu", masked=True)
        yield model, encode_text(model, open_corpus(known.corpus, **known.corpus_options).documents("test"))


def measure_yarn(folder: Path) -> dict[str, Any]:
    """Measure what YaRN costs on texts of the trained length, and its two halves alone."""
    read: list[dict[str, np.ndarray]] = []
    weights = []
    for model, stream in open_models(folder, "facts"):
        trained = int(model.trained_length or 0)
        texts_NS = cut_texts(stream, trained, trained - 1, SHORT_TEXTS, model.start_ids)
        losses = {}
        for name, method in {"none": Method("none", ""), **_lay_out_halves(model, trained)}.items():
            with apply(model, method) as laid:
                losses[name] = measure_losses(laid, texts_NS, trained - 1)
        read.append(losses)
        weights.append(hash_weights(model))
    pairs = {name: (name, "none") for name in ("yarn", "frequencies", "temperature")}
    pairs |= {"frequencies over temperature": ("frequencies", "temperature")}
    pairs |= {"temperature beside frequencies": ("yarn", "frequencies")}
    kept: dict[str, Any] = {
        "loss": float(_stack(read, "none").mean()),
        "texts": SHORT_TEXTS,
        "weights": ", ".join(weights),
    }
    kept |= tell_all({name: (_stack(read, ours), _stack(read, theirs)) for name, (ours, theirs) in pairs.items()})
    return kept | {f"{name}, %": 100 * kept[name] / kept["loss"] for name in pairs}


def _lay_out_halves(model: LanguageModel, trained: int) -> dict[str, Method]:
    rope = find_rope(model)
    assert rope is not None
    yarn = {"spectrum": "yarn", "factor": float(FACTOR), "original_length": trained}
    ones = (1.0,) * (rope[0] // 2)
    return {
        "yarn": Method("yarn", "", yarn),
        "frequencies": Method("frequencies", "", {**yarn, "attention_factor": 1.0}),
        "temperature": make_longrope("temperature", "", ones, trained, FACTOR, 0.1 * math.log(FACTOR) + 1),
    }


def measure_reach(folder: Path) -> dict[str, Any]:
    """Measure how long a text two kinds of models read as they are."""
    kept: dict[str, Any] = {}
    for name, recipe in (("rope", "facts"), ("windows", "facts-windows")):
        found, weights = [], []
        for model, stream in open_models(folder, recipe):
            trained = int(model.trained_length or 0)
            lengths = choose_lengths(trained, 8 * trained)
            found.append(measure(model, stream, lengths, trained, texts=4 * TEXTS, items=QUESTIONS))
            weights.append(hash_weights(model))
            print(recipe, found[-1].usable, flush=True)
        usable = [one.usable.length for one in found]
        failed = [any(rung.shown_not for rung in one.usable.rungs if rung.length <= trained) for one in found]
        kept[f"{name}, usable"] = ", ".join(map(str, usable))
        kept[f"{name}, least usable"], kept[f"{name}, most usable"] = min(usable), max(usable)
        kept[f"{name}, trained"] = trained
        kept[f"{name}, shown to read it"] = sum(length >= trained for length in usable)
        kept[f"{name}, shown not to read it"] = sum(failed)
        kept[f"{name}, weights"] = ", ".join(weights)
        kept |= _compare_lengths(name, found)
    return kept


def _compare_lengths(name: str, found: Sequence[LengthMeasurement]) -> dict[str, Any]:
    """Return the losses beyond the trained length against that at it, and recall at it against half of it."""
    trained = found[0].trained
    losses = _stack_by_length([one.drift.losses_NR for one in found], found[0])
    longer = [length for length in losses if length > trained]
    pairs = {f"{name}, {length // trained}x": (losses[length], losses[trained]) for length in longer}
    kept: dict[str, Any] = {}
    for task in found[0].retrieval.ranks:
        ranks = _stack_by_length([one.retrieval.ranks[task] for one in found], found[0])
        for length, ranks_SN in ranks.items():
            rank = float(ranks_SN.mean())
            kept[f"{name}, rank of {task}, {length / trained:g}x"] = None if np.isnan(rank) else rank
        if task == "recall":
            pairs[f"{name}, recall, 1x"] = ranks[trained], ranks[trained // 2]
    return kept | tell_all(pairs)


def _stack_by_length(read: Sequence[np.ndarray], found: LengthMeasurement) -> dict[int, np.ndarray]:
    """Return one row for each training, by length, of what was read of texts by lengths (N × R)."""
    return {length: np.stack([all_NR[:, place] for all_NR in read]) for place, length in enumerate(found.drift.lengths)}


def measure_temperature(folder: Path) -> dict[str, Any]:
    """Measure what a temperature by log position does on longer texts to models that were trained without it.

    ``log n``: scores grow as the logarithm of the position does over that of the trained length; ``Llama 4``: as there.
    Each model is judged by itself too, over its texts, by intervals that hold for all models together.
    """
    read: dict[str, list[np.ndarray]] = {"without": [], "log n": [], "Llama 4": []}
    for model, stream in open_models(folder, "facts", seeds=TEMPERED):
        trained = int(model.trained_length or 0)
        for key, coefficient in zip(read, (0.0, 1 / math.log(trained), 0.1), strict=True):
            temperature = {"scheme": "temperature", "length": trained, "coefficient": coefficient}
            with apply(
                model, Method(key, "", scheme={"scheme": "composition", "schemes": ["rope", temperature]})
            ) as laid:
                drift = measure_drift(laid, stream, [4 * trained, 8 * trained], tail=trained // 8, texts=2 * TEXTS)
            read[key].append(drift.losses_NR)
    kept: dict[str, Any] = {"trainings": len(TEMPERED), "trained": trained}
    pairs = {}
    for place, times in enumerate((4, 8)):
        losses = {key: np.stack([losses_NR[:, place] for losses_NR in rows]) for key, rows in read.items()}
        kept[f"without, {times}x"] = float(losses["without"].mean())
        for key in ("log n", "Llama 4"):
            pairs[f"{key}, {times}x"] = losses[key], losses["without"]
            each = compare_with_baseline(
                [row[:, None] for row in losses[key]], [row[:, None] for row in losses["without"]]
            )
            kept[f"{key}, lower in, {times}x"] = sum(difference.high < 0 for difference in each)
            kept[f"{key}, higher in, {times}x"] = sum(difference.low > 0 for difference in each)
    return kept | tell_all(pairs)


def measure_table(folder: Path) -> dict[str, Any]:
    """Measure what a table stretched to four times its rows loses on the same tokens, untrained and trained on."""
    return _measure_stretched(open_models(folder, "facts-table"), texts=TEXTS)


def measure_masked(folder: Path) -> dict[str, Any]:
    """Measure the same of an encoder with such a table, by the loss of masked tokens, of which a text has few."""
    return _measure_stretched(open_models(folder, "facts-table", "facts-masked", MASKED), texts=4 * TEXTS)


def _measure_stretched(models: Iterator[tuple[LanguageModel, np.ndarray]], texts: int) -> dict[str, Any]:
    read, weights = [], []
    for model, stream in models:
        read.append(_stretch(model, stream, texts))
        weights.append(hash_weights(model))
        trained = int(model.trained_length or 0)
    ways = [name for name in read[0] if name not in ("before", "interpolated, both trained", "held, both trained")]
    pairs = {name: (_stack(read, name), _stack(read, "before")) for name in ways}
    both = "interpolated, both trained"
    pairs[both] = (_stack(read, both), _stack(read, "held, both trained"))
    kept: dict[str, Any] = {"rows": trained, "longer": FACTOR * trained, "texts": texts, "weights": ", ".join(weights)}
    kept |= {"loss": float(_stack(read, "before").mean()), **tell_all(pairs)}
    return kept | {"best": min(ways, key=lambda name: kept[name])}


def _stretch(model: LanguageModel, stream: np.ndarray, texts: int) -> dict[str, np.ndarray]:
    """Return the losses of the texts before and after, by way, and after further training of two of them."""
    trained = int(model.trained_length or 0)
    longest, tail = FACTOR * trained, trained // 4
    parts = np.array_split(stream, 2)
    texts_NS = cut_texts(parts[1], longest, tail, texts, model.start_ids)
    losses = {"before": measure_losses(model, texts_NS[:, -trained:], tail)}
    stretched = {method.name: method for method in list_methods(model, trained, longest)[1:]}
    for name, method in stretched.items():
        with apply(model, method) as laid:
            losses[name] = measure_drift(laid, parts[1], [longest], tail=tail, texts=texts).losses_NR[:, 0]
    for name, length in (("interpolated", longest), ("held", trained)):  # held at its own length, it is a copy
        with apply(model, replace(stretched[name], rows=length)) as laid:
            tune(laid, parts[0], Tuning(STEPS, "full"), trained, length)
            losses[f"{name}, both trained"] = measure_losses(laid, texts_NS[:, -length:], tail)
    return losses


def _stack(read: Sequence[dict[str, np.ndarray]], name: str) -> np.ndarray:
    """Return one row for each training."""
    return np.stack([losses[name] for losses in read])


def tell_all(pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Return every difference with an interval that holds for all together."""
    differences = compare_with_baseline([ours for ours, _ in pairs.values()], [theirs for _, theirs in pairs.values()])
    kept: dict[str, Any] = {}
    for name, difference in zip(pairs, differences, strict=True):
        kept |= _tell(name, difference)
    return kept


def _tell(name: str, difference: Any) -> dict[str, Any]:
    """Return a difference with its interval and what it shows."""
    verdict = "more" if difference.low > 0 else "less" if difference.high < 0 else "undecided"
    low, high = float(difference.low), float(difference.high)
    return {name: float(difference.value), f"{name}, low": low, f"{name}, high": high, f"{name}, verdict": verdict}


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "longer-yarn": measure_yarn,
    "longer-reach": measure_reach,
    "longer-temperature": measure_temperature,
    "longer-table": measure_table,
    "longer-masked": measure_masked,
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
