"""Whether ``clockhands extend`` chooses the best method, and which published orderings come out.

python benchmarks/extending_pairs.py FOLDER [--pairs 20]

Twenty pairs of a model and a factor. The models are trained here, from recipes/facts*.toml with other seeds, bases and
lengths, about two minutes of one core each. For every pair the command's own choice is made; then every method is
measured on text that the choice never saw, and the two are compared. FOLDER keeps models and results, so that the
command goes on wherever it was stopped; what is finished stands in results/extending_pairs.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from timing import report

from clockhands.data import open_corpus
from clockhands.extension import Archive, Tuning, apply, choose_method, encode_text, list_methods, measure, tune
from clockhands.extension.drift import measure_losses
from clockhands.extension.judge import GUARD, judge
from clockhands.extension.measure import choose_lengths
from clockhands.extension.methods import Method, can_write
from clockhands.extension.retrieval import choose_writing, measure_retrieval
from clockhands.extension.signature import hash_weights
from clockhands.extension.text import cut_texts
from clockhands.files import write_text
from clockhands.runs import LanguageModel, Run, open_language_model
from clockhands.training import train

RECIPES = Path(__file__).parents[1] / "recipes"
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "seed 0": ("facts", {}),
    "windows": ("facts-windows", {}),
    "seed 1": ("facts", {"training.seed": 1}),
    "base 500": ("facts", {"training.seed": 2, "position.base": 500.0}),
    "128 tokens": ("facts", {"training.seed": 3, "batches.window": 128, "batches.size": 8}),
    "base 100,000": ("facts", {"training.seed": 4, "position.base": 100_000.0}),
    "seed 5": ("facts", {"training.seed": 5}),
}
FACTORS = (4, 8, 2)
PAIRS = [(model, factor) for model in MODELS for factor in FACTORS][:20]
TEXTS, ITEMS = 32, 60
TASKS = ("passkey", "recall")
STEPS = 200
"""Of the training after which some orderings are said to turn."""
ORDERINGS = (
    ("ntk", "linear", FACTORS, "untrained, NTK-aware scaling beats interpolation", "bloc97 2023; Peng et al. 2024"),
    ("yarn", "ntk", (4, 8), "YaRN beats NTK-aware scaling from four times on", "Peng et al. 2024, section 4"),
    ("yarn", "linear", FACTORS, "YaRN beats interpolation", "Peng et al. 2024, section 4"),
    ("by-parts", "linear", FACTORS, "by parts beats interpolation", "Peng et al. 2024, section 3.2"),
    ("yarn", "by-parts", FACTORS, "YaRN's temperature lowers the loss", "Peng et al. 2024, section 3.4"),
    ("dynamic", "none", FACTORS, "a base that grows with the text beats none", "emozilla 2023"),
    ("searched", "yarn", (8,), "searched factors beat YaRN at eight times", "Ding et al. 2024, table 3"),
    ("self-extend", "none", FACTORS, "Self-Extend beats the model as it is", "Jin et al. 2024, table 1"),
    ("rerope", "ntk", FACTORS, "ReRoPE beats NTK-aware scaling", "Su 2023"),
    ("dual-chunk", "linear", FACTORS, "dual chunks beat interpolation", "An et al. 2024, table 1"),
    ("linear, trained", "ntk, trained", (4,), "after 200 steps interpolation is as good or better", "Chen et al. 2023"),
    ("linear, trained", "linear", (4,), "interpolation needs training", "Chen et al. 2023, table 1"),
)
"""The method said to have the smaller loss on longer texts, the other, at which factors, in words, by whom."""


def open_model(folder: Path, name: str) -> LanguageModel:
    """Open a reference model; train it first where it is not there."""
    recipe, overrides = MODELS[name]
    run = folder / "models" / name.replace(" ", "-").replace(",", "")
    if not (run / "config.json").is_file():
        train(RECIPES / f"{recipe}.toml", run, overrides, overwrite=True, draw=False, progress=True)
    return open_language_model(run, device="cpu")


def measure_all(
    model: LanguageModel, methods: Sequence[Method], stream: np.ndarray, trained: int, longest: int, archive: Archive
) -> dict[str, dict[str, Any]]:
    """Return of every method its cost on short texts, and its loss and mean rank beyond the trained length, by text."""
    judged = judge(model, methods, stream, trained, longest, texts=TEXTS, items=ITEMS, tasks=(), archive=archive)
    writing = choose_writing(model, stream, trained, seed=9)
    lengths = [length for length in choose_lengths(trained, longest) if length > trained]
    found = {}
    for entry in judged:

        def retrieve(entry: Any = entry) -> Any:
            with apply(model, entry.method) as laid:
                return measure_retrieval(
                    laid, stream, lengths, writing, items=ITEMS, seed=9, tasks=TASKS, control=False
                )  # fmt: skip

        ranks = archive.keep_retrieval(f"all/{entry.method.key}", retrieve).ranks
        found[entry.method.name] = {
            "cost": entry.relative_cost,
            "losses": entry.drift.losses_NR[:, 1:].mean(1).tolist(),
            "rank": float(np.mean([ranks_NR.mean() for ranks_NR in ranks.values()])),
            "writable": can_write(model, entry.method),
        }
    return found


def measure_trained(model: LanguageModel, stream: np.ndarray, test: np.ndarray, trained: int, longest: int) -> Any:
    """Yield two methods after some steps of skip-wise training, and their losses of the texts of ``test``."""
    methods = {method.name: method for method in list_methods(model, trained, longest)}
    tail = max(4, min(64, trained // 4))
    for name in ("linear", "ntk"):
        with apply(model, methods[name]) as laid:
            tune(laid, stream, Tuning(STEPS), trained, longest)
            losses = [
                measure_losses(laid, cut_texts(test, length, tail, TEXTS // 2, model.start_ids), tail)
                for length in choose_lengths(trained, longest)
                if length > trained
            ]
        yield f"{name}, trained", {"losses": np.mean(losses, axis=0).tolist()}


def measure_pair(folder: Path, name: str, factor: int) -> dict[str, Any]:
    """Choose a method for a pair, measure all on other text, and return both."""
    model = open_model(folder, name)
    recipe_corpus = open_corpus("facts", **_read_data_options(folder, name))
    stream = encode_text(model, recipe_corpus.documents("test"))
    parts, trained = np.array_split(stream, 3), int(model.trained_length or 0)
    longest = factor * trained
    archive = Archive(folder / f"{name}-{factor}.measured.json".replace(" ", "-"), hash_weights(model))
    as_it_is = measure(
        model, parts[0], choose_lengths(trained, longest), trained, texts=TEXTS, items=ITEMS, archive=archive
    )
    learned = as_it_is.usable.learned
    choice = choose_method(
        model, parts[0], parts[1], trained, longest, texts=TEXTS, items=ITEMS, evaluations=64, learned=learned,
        archive=archive,
    )  # fmt: skip
    methods = list_methods(model, trained, longest)
    searched = [entry.method for entry in choice.judged if entry.method.name == "searched"]
    found = measure_all(model, [*methods, *searched], parts[2], trained, longest, archive)
    if factor == 4:
        kept = archive.keep("trained", lambda: dict(measure_trained(model, parts[0], parts[2], trained, longest)))
        found |= kept
    return {
        "model": name, "factor": factor, "weights": hash_weights(model), "learned": list(learned),
        "usable": as_it_is.usable.length, "chosen": choice.chosen.method.name,
        "passed": [entry.method.name for entry in choice.judged if entry.passes], "measured": found,
    }  # fmt: skip


def _read_data_options(folder: Path, name: str) -> Mapping[str, Any]:
    run = folder / "models" / name.replace(" ", "-").replace(",", "")
    return Run.from_folder(run).recipe.corpus_options


def judge_pair(pair: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the chosen method with the best of those that cost little on short text, both on text of their own."""
    able = {name: entry for name, entry in pair["measured"].items() if entry.get("writable")}
    cheap = {name: entry for name, entry in able.items() if entry["cost"] <= GUARD}
    losses = {name: float(np.mean(entry["losses"])) for name, entry in cheap.items()}
    chosen = able[pair["chosen"]]
    best = min(losses, key=lambda name: losses[name])
    loss = float(np.mean(chosen["losses"])) / losses[best] - 1
    rank = max(entry["rank"] for entry in cheap.values()) - chosen["rank"]
    return {
        "pair": f"{pair['model']}, {pair['factor']}x", "usable": pair["usable"], "chosen": pair["chosen"],
        "best by loss": best, "loss above it, %": round(100 * loss, 2),
        "points of rank below the best": round(100 * rank, 1), "cost on short text, %": round(100 * chosen["cost"], 2),
        "good": bool(loss <= 0.01 and rank <= 0.02),
        "passed the guard at more than 1 %": [
            name for name in pair["passed"] if pair["measured"][name]["cost"] > GUARD
        ],
    }  # fmt: skip


def judge_orderings(pairs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each ordering with the mean difference of losses over models, and its interval; models are the sample."""
    for better, worse, factors, words, source in ORDERINGS:
        by_model: dict[str, list[float]] = {}
        for pair in pairs:
            measured = pair["measured"]
            if pair["factor"] in factors and better in measured and worse in measured:
                gap = np.mean(measured[worse]["losses"]) - np.mean(measured[better]["losses"])
                by_model.setdefault(pair["model"], []).append(float(gap))
        gaps = np.array([np.mean(each) for each in by_model.values()])
        if len(gaps) < 2:
            yield {"ordering": words, "source": source, "models": len(gaps), "verdict": "too few models"}
            continue
        reach = float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps)))
        low, high = float(gaps.mean()) - reach, float(gaps.mean()) + reach
        verdict = "comes out" if low > 0 else "contradicted" if high < 0 else "undecided"
        yield {
            "ordering": words, "source": source, "models": len(gaps), "nats": round(float(gaps.mean()), 3),
            "low": round(low, 3), "high": round(high, 3), "verdict": verdict,
        }  # fmt: skip


def main() -> None:
    """Measure the pairs that are not measured yet, and write what all say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=len(PAIRS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    pairs = []
    for name, factor in PAIRS[: given.pairs]:
        path = given.folder / f"{name}-{factor}.pair.json".replace(" ", "-")
        if not path.exists():
            write_text(path, json.dumps(measure_pair(given.folder, name, factor)))
        pairs.append(json.loads(path.read_text("utf8")))
        judged = [judge_pair(pair) for pair in pairs]
        results = {
            "pairs": judged, "good": f"{sum(entry['good'] for entry in judged)} of {len(judged)}",
            "orderings": list(judge_orderings(pairs)), "weights": {pair["model"]: pair["weights"] for pair in pairs},
        }  # fmt: skip
        setting = f"{len(pairs)} of {len(PAIRS)} pairs; {TEXTS} texts, {ITEMS} questions; float32, one thread"
        report("extending_pairs", "python benchmarks/extending_pairs.py FOLDER", setting, results)


if __name__ == "__main__":
    main()
