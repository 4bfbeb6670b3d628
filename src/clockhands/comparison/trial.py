"""One trial: train a variant from a seed, measure it, and say what came out as plain data."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clockhands import __version__
from clockhands.comparison.cost import material_key
from clockhands.comparison.initial_weights import draw_by_name
from clockhands.comparison.model_measures import During, Inside
from clockhands.comparison.workers.peak_memory import peak_mebibytes, watch_peak
from clockhands.data import Pair
from clockhands.errors import BusyError, ClockhandsError, PositionError
from clockhands.findings import Number
from clockhands.generation import Evaluation, evaluate, pair_loss, translate
from clockhands.machine import machine
from clockhands.runs import Run, open_run
from clockhands.runs.recipe import combine, vary
from clockhands.training import Diverged, Material, Recipe, TrainingStopped, prepare, train
from clockhands.training.begin import take_up
from clockhands.training.precision import unmeasured

EXPLAINED = ("train", "validation", "test")
BEYOND = (2, 4)
"""Windows of a language model that many times longer than trained are read too."""


def run_trial(tables: Mapping[str, Any], variant: str, seed: int, metric: str, target: Number | None,
              measures: Sequence[str], folder: str, keep: bool) -> dict[str, Any]:  # fmt: skip
    """Train and measure; a run that diverges or fails is a result too. Raises TrainingStopped after Ctrl-C, and
    BusyError where another process runs the same trial."""
    result: dict[str, Any] = {"variant": variant, "seed": seed, "version": __version__}
    try:
        result |= {"status": "finished", **_measured(tables, seed, metric, target, measures, Path(folder), keep)}
    except (BusyError, TrainingStopped):
        raise
    except Diverged as fault:
        result |= {"status": "diverged", "error": str(fault)}
    except (ClockhandsError, RuntimeError, ValueError, IndexError) as fault:
        result |= {"status": "failed", "error": f"{type(fault).__name__}: {fault}"}
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _measured(tables: Mapping[str, Any], seed: int, metric: str, target: Number | None, measures: Sequence[str],
              folder: Path, keep: bool) -> dict[str, Any]:  # fmt: skip
    recipe = _alike(combine(dict(tables), {}))
    material = _material(recipe)
    inside = Inside(material, measures)
    before, during = {}, During(inside)

    def begin(model: Any) -> None:
        draw_by_name(model, seed)
        take_up(recipe, model, Path(folder))
        before.update(inside.look(model.eval()))
        model.train()
        torch.manual_seed(seed)

    watch_peak()
    begun = time.perf_counter()
    run = train(recipe, folder, overwrite=True, material=material, begin=begin, watchers=[during], draw=keep)
    seconds = time.perf_counter() - begun
    opened = open_run(run)
    facts = _scores(opened, material, metric)
    after = inside.look(opened.model)
    return {
        **facts,
        "steps": run.record["step"],
        "seconds": round(seconds, 2),
        "parameters": run.record["parameters"],
        "peak_mib": peak_mebibytes(),
        "tokens_per_second": _speed(run),
        "curve": _curve(run),
        "reached": _reached(run, target, seconds),
        "inside": {"before": before, "during": during.seen, "after": after} if measures else {},
        "torch": run.record["torch"],
        "device": run.record["device"],
        "machine": machine(run.record["device"]),
    }


def _alike(recipe: Recipe) -> Recipe:
    """The recipe with a precision that depends on no measurement: all trials of a comparison compute alike."""
    gpu = torch.cuda.is_available() and recipe.training.device != "cpu"
    precision = unmeasured(recipe.training, torch.device("cuda" if gpu else "cpu"))
    return vary(recipe, {"training.precision": precision.name})


_MATERIALS: dict[str, Material] = {}
"""What this worker read last: read and encoded once, not once a trial."""


def _material(recipe: Recipe) -> Material:
    key = material_key(recipe)
    if key not in _MATERIALS:
        _MATERIALS.clear()
        _MATERIALS[key] = prepare(recipe)
    return _MATERIALS[key]


def _scores(opened: Any, material: Material, metric: str) -> dict[str, Any]:
    """The metric on the test split item by item, other scores, and the same beyond the trained length."""
    corpus = material.corpus
    split = "test" if "test" in corpus else "validation"
    if corpus.task == "language modelling":
        return _language_scores(opened, material, split)
    pairs = corpus.pairs(split)
    begun = time.perf_counter()
    found = evaluate(opened, pairs)
    written = sum(len(opened.tokenizers.target(one.text)["input_ids"]) for one in found.translations)
    longer = {name: _beyond(opened, corpus.pairs(name)) for name in corpus if name not in EXPLAINED}
    return {
        "split": split,
        "items": _items(found, pairs, metric),
        "scores": {score.name: round(score.value, 4) for score in found.scores},
        "by_length": [list(found.by_length.columns), *map(list, found.by_length.rows)],
        "written_per_second": round(written / (time.perf_counter() - begun), 1),
        "longer": longer,
    }


def _language_scores(opened: Any, material: Material, split: str) -> dict[str, Any]:
    documents, window = material.corpus.documents(split), int(getattr(material.train, "length", 128))
    found = evaluate(opened, documents, length=window)
    longer = {f"{times} × {window} tokens": _beyond(opened, documents, times * window) for times in BEYOND}
    return {
        "split": split,
        "items": _items(found, [], "loss"),
        "scores": {score.name: round(score.value, 4) for score in found.scores},
        "by_length": [list(found.by_length.columns), *map(list, found.by_length.rows)],
        "longer": longer,
    }


def _beyond(opened: Any, text: Sequence[Any], length: int | None = None) -> dict[str, Any]:
    """Scores on longer text; a scheme that has no such positions says so, which is a result."""
    try:
        if length is None:
            return _pair_scores(opened, list(text))
        return {"loss": round(evaluate(opened, text, length=length).loss.mean, 4)}
    except (PositionError, IndexError) as fault:
        return {"refused": str(fault)}


def _pair_scores(opened: Any, pairs: list[Pair]) -> dict[str, Any]:
    """Exact match in percent, chrF and loss, without the intervals that nobody reads of a single trial."""
    from sacrebleu.metrics.chrf import CHRF

    texts = [one.text for one in translate(opened, [pair.source for pair in pairs])]
    exact = [text.strip() == pair.target.strip() for text, pair in zip(texts, pairs, strict=True)]
    return {
        "exact": round(100 * sum(exact) / len(exact), 4),
        "chrF2": round(CHRF().corpus_score(texts, [[pair.target for pair in pairs]]).score, 4),
        "loss": round(pair_loss(opened, pairs).mean, 4),
    }


def _items(found: Evaluation, pairs: Sequence[Pair], metric: str) -> str | list[float]:
    """The metric of every test item: digits 0 and 1 for exact match; the mean of all is the score."""
    texts = [one.text for one in found.translations]
    if metric == "exact":
        return "".join(str(int(t.strip() == p.target.strip())) for t, p in zip(texts, pairs, strict=True))
    if metric == "chrf":
        from sacrebleu.metrics.chrf import CHRF

        score = CHRF()
        return [round(score.sentence_score(t, [p.target]).score, 3) for t, p in zip(texts, pairs, strict=True)]
    return [round(float(nats), 5) for nats in found.loss.nats_N / found.loss.tokens_N.mean()]


def items_of(result: Mapping[str, Any]) -> np.ndarray:
    """What ``_items`` wrote, as numbers; exact match in percent."""
    items = result["items"]
    if isinstance(items, str):
        return 100.0 * np.array([int(digit) for digit in items], dtype=np.float64)
    return np.array(items, dtype=np.float64)


def _curve(run: Run) -> list[list[Number | None]]:
    """Step, training loss, validation loss; at most 200 points."""
    merged: dict[int, list[Number | None]] = {}
    for line in run.metrics:
        row = merged.setdefault(line["step"], [line["step"], None, None])
        row[1] = round(line["loss"], 5) if "loss" in line else row[1]
        row[2] = round(line["validation_loss"], 5) if "validation_loss" in line else row[2]
    rows = list(merged.values())
    return rows[:: max(1, math.ceil(len(rows) / 200))]


def _reached(run: Run, target: Number | None, seconds: float) -> dict[str, Number] | None:
    """The first evaluation (or log line, without a validation split) at or below the target."""
    if target is None:
        return None
    lines = run.metrics
    name = "validation_loss" if any("validation_loss" in line for line in lines) else "loss"
    hit = next((line["step"] for line in lines if name in line and line[name] <= target), None)
    return None if hit is None else {"step": hit, "seconds": round(seconds * hit / run.record["step"], 2)}


def _speed(run: Run) -> float:
    """The median over log lines of target tokens per second."""
    return float(np.median([line["tokens_per_second"] for line in run.metrics if "tokens_per_second" in line]))
