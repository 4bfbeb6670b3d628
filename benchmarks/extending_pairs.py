"""Whether ``clockhands extend`` chooses as well as somebody who measured every method at length.

python benchmarks/extending_pairs.py FOLDER [--pairs 20]

Pairs of a model and a factor. The models are trained here, from recipes/facts*.toml with other seeds, bases, lengths
and widths, one to six minutes of one core each. For every pair the command's own choice is made, with its defaults;
then every method is measured on text that the choice never saw, those that may be the best on more of it, and those
that still may on yet another text, many times as long, so that the choice is judged and not the noise of this measure.
FOLDER keeps models and results, so that the command goes on wherever it was stopped; what is finished stands in
results/extending_pairs.json, with the published orderings (extending_orderings.py) that the same losses decide.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from extending_orderings import ORDERINGS, judge_orderings
from extending_regret import judge_pair, list_finalists, tally
from timing import report

from clockhands.data import open_corpus
from clockhands.extension import Tuning, apply, encode_text, list_methods, measure, tune
from clockhands.extension.archive import Archive, hash_weights
from clockhands.extension.choose import GUARD, choose_judged_tail, choose_method
from clockhands.extension.measure import choose_lengths
from clockhands.extension.methods import Method, can_write, find_rope
from clockhands.extension.reading import cut_texts, measure_drift, measure_losses
from clockhands.extension.retrieval import choose_writing, measure_retrieval
from clockhands.files import write_text
from clockhands.models import LanguageModel, open_language_model
from clockhands.runs import Run
from clockhands.training import train

RECIPES = Path(__file__).parents[1] / "recipes"
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "seed 0": ("facts", {}),
    "table": ("facts-table", {}),
    "base 500": ("facts", {"training.seed": 2, "position.base": 500.0}),
    "base 100,000": ("facts", {"training.seed": 4, "position.base": 100_000.0}),
    "128 tokens": ("facts", {"training.seed": 3, "batches.window": 128, "batches.size": 8}),
    "windows": ("facts-windows", {}),
    "seed 1": ("facts", {"training.seed": 1}),
    "wide": ("facts", {"training.seed": 6, "model.d_model": 192, "model.num_heads": 6, "model.d_ff": 512}),
}
FACTORS = (4, 2, 8)
PAIRS = [(model, factor) for model in MODELS for factor in FACTORS]
TEXTS, ITEMS = 32, 60
"""Of the choice: the defaults of the command."""
DOCUMENTS = 400
"""Of the text of the choice: the split *test* of the recipes. What follows it in the same corpus, as many again twice,
is that by which the finalists are found; and four times as many after that, that of the judgement."""
SHORT_TEXTS = 128
FIRST, SECOND, LAST = (32, 60), (96, 400), (384, 1600)
"""Texts and questions by which all methods are measured at every length, then those that may be the best, and then
those of them that still may."""
NEAR_LOSS, NEAR_RANK = 0.1, 0.05
"""What may be the best: within such a share of the smallest loss, or such a distance of the highest rank. Both are more
than twice what the choice may be behind."""
ORDERED = 192
"""Texts by which the orderings are judged."""
TASKS = ("passkey", "recall")
"""Of retrieval; *tracking* is at chance in these models from 64 tokens on."""
STEPS = 200
"""Of the training after which some orderings are said to turn."""


def get_run(folder: Path, name: str) -> Path:
    """Return where the model of a name is."""
    return folder / "models" / name.replace(" ", "-").replace(",", "")


@lru_cache(maxsize=1)
def open_model(folder: Path, name: str) -> tuple[LanguageModel, np.ndarray, np.ndarray, np.ndarray]:
    """Open a reference model, trained first where it is not there, with the texts of choice, finalists, judgement."""
    recipe, overrides = MODELS[name]
    run = get_run(folder, name)
    if not (run / "config.json").is_file():
        train(RECIPES / f"{recipe}.toml", run, overrides, overwrite=True, draw=False, progress=False)
    model = open_language_model(run, device="cpu")
    options = {**Run.from_folder(run).recipe.corpus_options, "test": 7 * DOCUMENTS}
    documents = open_corpus("facts", **options).documents("test")
    first, last = (encode_text(model, part) for part in (documents[:DOCUMENTS], documents[3 * DOCUMENTS :]))
    return model, first, encode_text(model, documents[DOCUMENTS : 3 * DOCUMENTS]), last


@dataclass(frozen=True)
class Setting:
    """What a pair is judged on: the text, the two lengths, the tasks, and where results are kept."""

    stream: np.ndarray
    trained: int
    longest: int
    tasks: tuple[str, ...]
    archive: Archive

    @property
    def beyond(self) -> list[int]:
        """The lengths beyond the trained one."""
        return [length for length in choose_lengths(self.trained, self.longest) if length > self.trained]

    @property
    def tail(self) -> int:
        """How many last tokens are scored, as in the judgement of the command."""
        return choose_judged_tail(self.trained)


def measure_cost(model: LanguageModel, methods: Sequence[Method], setting: Setting) -> dict[str, float]:
    """Return what each method costs on texts of the trained length, as a share of the loss; the first costs nothing."""
    scored = setting.trained - 1
    texts_NS = cut_texts(setting.stream, setting.trained, scored, SHORT_TEXTS, model.start_ids)
    losses: list[float] = []
    for method in methods:
        if losses and method.spares_short_texts:
            losses.append(losses[0])
            continue
        with apply(model, method) as laid:
            key = f"short/{method.key}/{SHORT_TEXTS}"
            losses.append(setting.archive.keep_array(key, lambda: measure_losses(laid, texts_NS, scored)).mean())
    return {method.name: loss / losses[0] - 1 for method, loss in zip(methods, losses, strict=True)}


def measure_beyond(
    model: LanguageModel, methods: Sequence[Method], costs: Mapping[str, float], setting: Setting, texts: int,
    items: int, seed: int = 9,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Return of every method its cost on short text, and its losses beyond the trained length, by text.

    Of those that cost no more than the guard allows, the ranks too: no other can be the best.
    """
    writing = choose_writing(model, setting.stream, setting.trained, seed=seed)
    found = {}
    for method in methods:
        with apply(model, method) as laid:
            key = f"{method.key}/{setting.longest}"
            drift = setting.archive.keep_drift(
                f"long/{key}/{texts}",
                lambda: measure_drift(laid, setting.stream, setting.beyond, tail=setting.tail, texts=texts),
            )
            losses_N = drift.losses_NR.mean(1)
            kept = found[method.name] = {"cost": costs[method.name], "writable": can_write(model, method)}
            if not np.isfinite(losses_N).all():
                continue
            kept["losses"] = losses_N.tolist()
            if setting.tasks and kept["writable"] and kept["cost"] <= GUARD:
                ranks = setting.archive.keep_retrieval(
                    f"recall/{key}/{items}",
                    lambda: measure_retrieval(
                        laid, setting.stream, setting.beyond, writing, items=items, seed=seed, tasks=setting.tasks,
                        control=False,
                    ),
                ).ranks  # fmt: skip
                kept["ranks"] = np.mean([ranks_NR.mean(1) for ranks_NR in ranks.values()], axis=0).tolist()
    return found


def list_contenders(measured: Mapping[str, Mapping[str, Any]], chosen: str) -> list[str]:
    """Return the methods that may be the best of those that cost little on short text, and the chosen one."""
    able = {name: entry for name, entry in measured.items() if entry["writable"] and "losses" in entry}
    cheap = {name: entry for name, entry in able.items() if entry["cost"] <= GUARD}
    losses = {name: float(np.mean(entry["losses"])) for name, entry in cheap.items()}
    ranks = {name: float(np.mean(entry.get("ranks", 0.0))) for name, entry in cheap.items()}
    least, most = min(losses.values()), max(ranks.values())
    near = [
        name
        for name in cheap
        if losses[name] <= (1 + NEAR_LOSS) * least or (most > 0 and ranks[name] >= most - NEAR_RANK)
    ]
    return list(dict.fromkeys(["none", *near, chosen]))


def measure_ordered(model: LanguageModel, methods: Sequence[Method], setting: Setting) -> dict[str, dict[str, Any]]:
    """Return the losses of all methods that an ordering names, by text, on more text than all methods are read on."""
    named = {name for ordering in ORDERINGS for name in (ordering.better, ordering.worse)}
    found = {}
    for method in methods:
        if method.name not in named:
            continue
        with apply(model, method) as laid:
            drift = setting.archive.keep_drift(
                f"ordered/{method.key}/{setting.longest}/{ORDERED}",
                lambda: measure_drift(laid, setting.stream, setting.beyond, tail=setting.tail, texts=ORDERED),
            )
        losses_N = drift.losses_NR.mean(1)
        if np.isfinite(losses_N).all():
            found[method.name] = {"losses": losses_N.tolist()}
    return found


def measure_trained(model: LanguageModel, stream: np.ndarray, setting: Setting) -> dict[str, dict[str, Any]]:
    """Return the losses of two methods after some steps on texts of the new length, each on a copy of the model."""
    methods = {method.name: method for method in list_methods(model, setting.trained, setting.longest)}
    found = {}
    for name in ("linear", "ntk"):
        with apply(model, methods[name]) as laid:
            tune(laid, stream, Tuning(STEPS, "full", batch=4), setting.trained, setting.longest)
            drift = measure_drift(laid, setting.stream, setting.beyond, tail=setting.tail, texts=ORDERED)
        found[f"{name}, trained"] = {"losses": drift.losses_NR.mean(1).tolist()}
    return found


def measure_pair(folder: Path, name: str, factor: int) -> dict[str, Any]:
    """Choose a method for a pair, measure all on other text, and return both."""
    model, stream, other, last = open_model(folder, name)
    trained = int(model.trained_length or 0)
    longest, weights = factor * trained, hash_weights(model)
    stem = f"{get_run(folder, name).name}-{factor}"
    archive = Archive(folder / f"{stem}.choice.json", weights)
    as_it_is = measure(
        model, stream, choose_lengths(trained, longest), trained, texts=TEXTS, items=ITEMS, archive=archive
    )
    learned = as_it_is.usable.learned
    choice = choose_method(
        model, *np.array_split(stream, 2), trained, longest, texts=TEXTS, items=ITEMS, evaluations=64, learned=learned,
        archive=archive,
    )  # fmt: skip
    methods = list_methods(model, trained, longest)
    methods += [entry.method for entry in choice.judged if entry.method.name == "searched"]
    chosen = choice.chosen.method.name
    tasks = tuple(task for task in TASKS if task in learned)
    setting = Setting(other, trained, longest, tasks, Archive(folder / f"{stem}.judged.json", weights))
    costs = measure_cost(model, methods, setting)
    found = measure_beyond(model, methods, costs, setting, *FIRST)
    names = list_contenders(found, chosen)
    near = [method for method in methods if method.name in names]
    contenders = measure_beyond(model, near, costs, setting, *SECOND)
    ordered = measure_ordered(model, methods, setting)
    if factor == 4 and find_rope(model) is not None:
        ordered |= setting.archive.keep(f"trained/{ORDERED}", lambda: measure_trained(model, stream, setting))
    pair = {
        "model": name, "factor": factor, "weights": weights, "learned": list(learned),
        "usable": as_it_is.usable.length, "chosen": chosen,
        "passed": [entry.method.name for entry in choice.judged if entry.passes], "measured": found,
        "contenders": contenders, "ordered": ordered,
    }  # fmt: skip
    names = list_finalists(pair)
    finalists = [method for method in methods if method.name in names]
    archive = Archive(folder / f"{stem}.last.json", weights)
    return pair | {
        "finalists": measure_beyond(model, finalists, costs, replace(setting, stream=last, archive=archive), *LAST, 10)
    }


def summarise(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the pairs that are measured say."""
    judged = [judge_pair(pair) for pair in pairs]
    weights = {pair["model"]: pair["weights"] for pair in pairs}
    return {"pairs": judged, **tally(judged), "orderings": list(judge_orderings(pairs)), "weights": weights}


def main() -> None:
    """Measure the pairs that are not measured yet, and write what all say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=len(PAIRS), help="measure only so many (default: %(default)s)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    pairs = []
    for name, factor in PAIRS[: given.pairs]:
        path = given.folder / f"{get_run(given.folder, name).name}-{factor}.pair.json"
        if not path.exists():
            write_text(path, json.dumps(measure_pair(given.folder, name, factor)))
        pairs.append(json.loads(path.read_text("utf8")))
        setting = (
            f"{len(pairs)} of {len(PAIRS)} pairs; chosen with the command's defaults, judged by {LAST[0]} texts of "
            f"each length and {LAST[1]} questions; float32, one thread"
        )
        report("extending_pairs", "python benchmarks/extending_pairs.py FOLDER", setting, summarise(pairs))


if __name__ == "__main__":
    main()
