"""Run one trial: train a variant from a seed, score it item by item, look inside it, and note its peak memory.

Variants begin with the same weights wherever names and shapes agree. A model draws its weights from one stream, so that
one parameter more shifts all that follow; here each module draws from a stream of its own, seeded by the trial's seed
and the module's name."""

from __future__ import annotations

import contextlib
import hashlib
import math
import resource
import shutil
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clockhands import __version__
from clockhands.comparison.statistics.paired import name_cells
from clockhands.comparison.trial import CurvePoint, Job, LongerText, Measurements, StepValues, TargetReached, Trial
from clockhands.data import Corpus, Pair
from clockhands.data.datasets import WindowDataset, encode_texts
from clockhands.errors import BusyError, ClockhandsError, DataError, PositionError, ShortTextError
from clockhands.generation import Evaluation, Search, evaluate, measure_pair_loss, translate
from clockhands.inspection import Subject, Windows, cut_windows
from clockhands.inspection.reading.windows import select_one_length
from clockhands.machine import describe_machine
from clockhands.runs import Run, open_run
from clockhands.runs.recipe import make_recipe, vary_recipe
from clockhands.shapes import Float
from clockhands.training import Diverged, Recipe, TrainingData, TrainingStopped, prepare, train
from clockhands.training.model import load_begin_weights
from clockhands.training.schedule import choose_trial_precision, export_last

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel

MOST_POINTS = 200
"""Points that are kept of a learning curve, so that a long training does not fill the file."""
EXPLAINED = ("train", "validation", "test")
"""Splits of a corpus whose texts are as long as those in training."""
BEYOND = (2, 4, 8)
"""Windows of a language model that many times longer than trained are read too."""
TEXTS = 96
"""Texts of one length that are measured on: the length is one of which the corpus has so many, where there is one."""
MOST_READ = 5000
"""Training sources among which these texts are looked for."""
OVERFLOW = "its loss there is {}"
"""Why there are no scores of longer text on which logits overflow."""
MOST_TOKENS = 64
"""Tokens of a window that a language model is measured on."""


def run_trial(job: Job) -> Trial:
    """Train and measure; a run that diverges or fails is a trial too.

    Raises TrainingStopped after Ctrl-C, and BusyError where another process runs the same trial.
    """
    head: dict[str, Any] = {"variant": job.variant, "seed": job.seed, "version": __version__}
    try:
        trial = Trial(**head, status="finished", **_train_and_measure(job))
    except (BusyError, TrainingStopped):
        raise
    except Diverged as fault:
        trial = Trial(**head, status="diverged", error=str(fault))
    except (ClockhandsError, RuntimeError, ValueError, IndexError) as fault:
        trial = Trial(**head, status="failed", error=f"{type(fault).__name__}: {fault}")
    if not job.keep:
        shutil.rmtree(job.folder, ignore_errors=True)
    return trial


def make_material_key(recipe: Recipe) -> str:
    """Return what decides corpus, tokenizers and encoded text: trials with equal keys share these."""
    tables = recipe.tables
    return repr(
        (tables["data"], tables["tokenizer"], tables["batches"], recipe.model.architecture, recipe.training.text_seed)
    )


def load_material(recipe: Recipe) -> TrainingData:
    """Return corpus, tokenizers and encoded text of a recipe; those of the last recipe are kept in this process."""
    key = make_material_key(recipe)
    if key not in _MATERIALS:
        _MATERIALS.clear()
        _MATERIALS[key] = prepare(recipe)
    return _MATERIALS[key]


_MATERIALS: dict[str, TrainingData] = {}
"""The material of the last recipe, by its key (``make_material_key``)."""


def _train_and_measure(job: Job) -> dict[str, Any]:
    """Train as the job says, score the model and look inside it: fields of ``Trial``."""
    recipe = make_recipe(dict(job.tables), {})
    # A precision that depends on no processor, so that all trials compute alike.
    gpu = torch.cuda.is_available() and recipe.training.device != "cpu"
    precision = choose_trial_precision(recipe.training, torch.device("cuda" if gpu else "cpu"))
    recipe = export_last(vary_recipe(recipe, {"training.precision": precision.name}))
    material = load_material(recipe)
    inside = Inside(material, job.inside)
    before: dict[str, float] = {}
    during = During(inside)

    def begin(model: Any) -> None:
        draw_by_name(model, job.seed)
        load_begin_weights(recipe, model, Path(job.folder))
        before.update(inside.look(model.eval()))
        model.train()
        torch.manual_seed(job.seed)

    # Earlier peaks are forgotten, where the system can (CUDA, Linux).
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak resident set size
    begun = time.perf_counter()
    run = train(recipe, job.folder, overwrite=True, material=material, begin=begin, callbacks=[during], draw=job.keep)
    seconds = time.perf_counter() - begun
    opened = open_run(run)
    scores = score_trial(opened, material, job.metric)
    require_numbers(scores["items"])
    seen = tuple(StepValues(step, values) for step, values in during.seen)
    measured = Measurements(before, seen, inside.look(opened.model)) if job.inside else None
    return {**scores, **_list_facts(run, job, seconds), "inside": measured}


def _list_facts(run: Run, job: Job, seconds: float) -> dict[str, Any]:
    """Return what a run says of itself: its numbers, its learning curve, and when it reached the target."""
    record, lines = run.record, run.metrics
    curve: dict[int, CurvePoint] = {}
    for line in lines:
        point = curve.get(line["step"], CurvePoint(line["step"], None, None))
        for field, name in (("training_loss", "loss"), ("validation_loss", "validation_loss")):
            if name in line and math.isfinite(line[name]):
                point = point._replace(**{field: round(line[name], 5)})
        curve[point.step] = point
    points = tuple(curve.values())
    speeds = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    reached = None
    if job.target is not None:  # the first evaluation, or without a validation split the first log line
        name = "validation_loss" if any("validation_loss" in line for line in lines) else "loss"
        step = next((line["step"] for line in lines if name in line and line[name] <= job.target), None)
        if step is not None:
            reached = TargetReached(step, round(seconds * step / record["step"], 2))
    return {
        "steps": record["step"],
        "seconds": round(seconds, 2),
        "parameters": record["parameters"],
        "peak_mib": _read_peak_mebibytes(),
        "tokens_per_second": float(np.median(speeds)),
        "curve": points[:: max(1, math.ceil(len(points) / MOST_POINTS))],
        "reached": reached,
        "torch": record["torch"],
        "device": record["device"],
        "machine": describe_machine(record["device"]),
    }


@torch.no_grad()
def draw_by_name(model: ClockhandsPreTrainedModel, seed: int) -> None:
    """Draw the weights of a new model again, each module from a stream of its own."""
    for name, draw in model.transformer.list_initialisers(schemes=True):
        stream = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
        torch.manual_seed(int.from_bytes(stream, "big"))
        draw()
    torch.manual_seed(seed)


def _read_peak_mebibytes() -> float:
    """Return the peak of the trial: allocated on the GPU, or resident in this process and its libraries."""
    if torch.cuda.is_available():
        return round(torch.cuda.max_memory_allocated() / 2**20, 1)
    try:
        line = next(text for text in Path("/proc/self/status").read_text().splitlines() if text.startswith("VmHWM"))
        return round(int(line.split()[1]) / 1024, 1)
    except (OSError, StopIteration):
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def score_trial(run: Run, material: TrainingData, metric: str, *, brief: bool = False) -> dict[str, Any]:
    """Return split, items, scores, table by length and scores on longer text: fields of ``Trial``.

    ``brief``: of a model that has not learned to end, nothing is written that is longer than the references of a split.
    """

    def limit(pairs: Sequence[Pair]) -> Search | None:
        lengths = (len(run.tokenizers.target(pair.target)["input_ids"]) for pair in pairs)
        return Search(max_length=max(lengths)) if brief else None

    corpus = material.corpus
    split = find_test_split(corpus)
    fields: dict[str, Any] = {"split": split}
    if corpus.task == "language modelling":
        documents, window = corpus.documents(split), int(getattr(material.train, "length", 128))
        evaluation = evaluate(run, documents, length=window)
        fields["items"] = score_items(evaluation, [], "loss")
        fields["longer"] = {f"{n} × {window} tokens": _score_longer_text(run, documents, n * window) for n in BEYOND}
    else:
        pairs = corpus.pairs(split)
        begun = time.perf_counter()
        evaluation = evaluate(run, pairs, search=limit(pairs))
        written = sum(len(run.tokenizers.target(text.text)["input_ids"]) for text in evaluation.translations)
        longer = {
            name: _score_longer_pairs(run, corpus.pairs(name), limit(corpus.pairs(name)))
            for name in corpus
            if name not in EXPLAINED
        }
        fields |= {
            "items": score_items(evaluation, pairs, metric),
            "other_items": {"chrf": score_items(evaluation, pairs, "chrf")} if metric == "bleu" else {},
            "groups": find_groups(pairs),
            "written_per_second": round(written / (time.perf_counter() - begun), 1),
            "longer": longer,
        }
    fields["scores"] = {score.name: round(score.value, 4) for score in evaluation.scores}
    fields["by_length"] = (tuple(evaluation.by_length.columns), *map(tuple, evaluation.by_length.rows))
    return fields


def find_test_split(corpus: Corpus) -> str:
    """Return the split on which trials are scored."""
    return "test" if "test" in corpus else "validation"


def require_numbers(items: str | Sequence[float]) -> None:
    """Raise DataError that names the test items without a finite score."""
    if isinstance(items, str):
        return
    items_1N = np.array([items], dtype=np.float64)
    if wrong := name_cells(items_1N):
        raise DataError(f"there is no score for {wrong.removesuffix(' of row 0')} (from 0) of {items_1N.shape[1]:,}")


def _score_longer_text(run: Run, documents: Sequence[Any], window: int) -> LongerText:
    """Return the loss on longer windows, or the sentence that refused them.

    A scheme refuses positions, a table of positions ends, or the text is shorter than one window. Any other fault is
    the trial's: what the machine lacks would make the scores depend on the machine.
    """
    try:
        loss = evaluate(run, documents, length=window).loss.mean
    except (PositionError, ShortTextError, IndexError) as fault:
        # The folder of a trial tells nothing, and what comes after the reason is advice on options of `evaluate`.
        return LongerText(refused=str(fault).partition(";")[0].replace(str(run.path), "the model"))
    return LongerText(loss=round(loss, 4)) if math.isfinite(loss) else LongerText(refused=OVERFLOW.format(loss))


def _score_longer_pairs(run: Run, pairs: Sequence[Pair], search: Search | None) -> LongerText:
    """Return exact match in percent, chrF and loss of longer pairs, or the sentence that refused them."""
    from sacrebleu.metrics.chrf import CHRF

    try:
        texts = [translation.text for translation in translate(run, [pair.source for pair in pairs], search)]
        loss = measure_pair_loss(run, list(pairs)).mean
    except (PositionError, IndexError) as fault:
        return LongerText(refused=str(fault))
    exact = [text.strip() == pair.target.strip() for text, pair in zip(texts, pairs, strict=True)]
    chrf = CHRF().corpus_score(texts, [[pair.target for pair in pairs]]).score
    longer = LongerText(exact=round(100 * sum(exact) / len(exact), 4), chrF2=round(chrf, 4), loss=round(loss, 4))
    return longer if math.isfinite(loss) else LongerText(refused=OVERFLOW.format(loss))


def find_groups(pairs: Sequence[Pair]) -> tuple[int, ...] | None:
    """Return the group of every pair, numbered from 0 in their order; None where no two pairs hang together.

    A pair without a group is one of its own.
    """
    keys = [("alone", place) if pair.group is None else ("group", pair.group) for place, pair in enumerate(pairs)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return None if len(numbers) == len(keys) else tuple(numbers[key] for key in keys)


def score_items(evaluation: Evaluation, pairs: Sequence[Pair], metric: str) -> str | tuple[float, ...]:
    """Return the metric of every test item: digits 0 and 1 for exact match; the mean of all is the score."""
    texts = [translation.text for translation in evaluation.translations]
    if metric == "exact":
        return "".join(str(int(t.strip() == p.target.strip())) for t, p in zip(texts, pairs, strict=True))
    if metric == "bleu":
        return tuple(round(float(value), 4) for value in linearise_bleu(texts, [pair.target for pair in pairs]))
    if metric == "chrf":
        from sacrebleu.metrics.chrf import CHRF

        score = CHRF()
        return tuple(round(score.sentence_score(t, [p.target]).score, 3) for t, p in zip(texts, pairs, strict=True))
    return tuple(round(float(nats), 5) for nats in evaluation.loss.linearised_N)


def linearise_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Float[np.ndarray, " N"]:
    """Return for each of N translations what it is to the BLEU of them all, in percent; their mean is that BLEU.

    Where no translation has an n-gram of some order, BLEU is 0, and so are all values.
    """
    from sacrebleu.metrics.bleu import BLEU

    whole = BLEU(force=True).corpus_score(list(hypotheses), [list(references)])
    if not whole.score:
        return np.zeros(len(hypotheses))
    single = BLEU(effective_order=True, force=True)
    parts = [single.sentence_score(text, [wanted]) for text, wanted in zip(hypotheses, references, strict=True)]
    right_N4, total_N4 = np.array([p.counts for p in parts], float), np.array([p.totals for p in parts], float)
    written_N, wanted_N = np.array([[p.sys_len, p.ref_len] for p in parts], float).T
    # An order without any match is smoothed by sacreBLEU to a constant over the total, which is shared by all alike.
    shares_N4 = np.where(right_N4.sum(0) > 0, right_N4 / np.maximum(right_N4.sum(0), 1), 1 / len(parts))
    slope_N = (shares_N4 - total_N4 / total_N4.sum(0)).mean(1)
    if written_N.sum() < wanted_N.sum():
        ratio = wanted_N.sum() / written_N.sum()
        slope_N += ratio * (written_N / written_N.sum() - wanted_N / wanted_N.sum())
    return whole.score * (1 + len(parts) * slope_N)


class Inside:
    """Measures inside the models of one trial, always on the same texts, with the ``measures`` of a plan."""

    def __init__(self, material: TrainingData, measures: Sequence[str]) -> None:
        self.material, self.measures = material, measures

    @cached_property
    def texts(self) -> Windows:
        """The longest training sources of one length of which there are enough; of a language model, windows."""
        corpus = self.material.corpus
        if corpus.task == "language modelling":
            windows = self.material.train
            assert isinstance(windows, WindowDataset)
            length = min(MOST_TOKENS, windows.length - 1)  # the last token of a window is only predicted
            tokenizer = self.material.tokenizers.source
            return cut_windows(tokenizer, corpus.documents("train"), length=length, count=TEXTS)
        sources = self.material.corpus.sources("train")[:MOST_READ]
        return select_one_length(encode_texts(self.material.tokenizers.source, sources), TEXTS, enough=TEXTS)

    @torch.no_grad()
    def look(self, model: Any, measures: Sequence[str] | None = None) -> dict[str, float]:
        """Measure a model; return finite numbers by name, none of a measure that does not apply."""
        from clockhands.inspection.during_training import MEASURE_FUNCTIONS  # late: most plans measure nothing inside

        numbers: dict[str, float] = {}
        for name in self.measures if measures is None else measures:
            numbers |= MEASURE_FUNCTIONS[name](Subject.of(model), self.texts)
        return {name: round(value, 5) for name, value in numbers.items() if math.isfinite(value)}


class During(TrainerCallback):
    """Measures whenever the validation loss is taken, as far as that costs next to nothing; ``seen``: step, numbers."""

    def __init__(self, inside: Inside) -> None:
        from clockhands.inspection.during_training import CHEAP_MEASURES

        self.inside = inside
        self.measures = [name for name in inside.measures if name in CHEAP_MEASURES]
        self.seen: list[tuple[int, dict[str, float]]] = []

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        if self.measures:
            self.seen.append((state.global_step, self.inside.look(model, self.measures)))
