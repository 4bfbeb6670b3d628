"""Scores of a trained model: the metric item by item on the test split, and on text longer than any in training."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from clockhands.comparison.statistics.paired import name_cells
from clockhands.comparison.trial import LongerText
from clockhands.data import Corpus, Pair
from clockhands.errors import DataError, PositionError, ShortTextError
from clockhands.generation import Evaluation, evaluate, measure_pair_loss, translate
from clockhands.runs import Run
from clockhands.shapes import Float
from clockhands.training import TrainingData

EXPLAINED = ("train", "validation", "test")
"""Splits of a corpus whose texts are as long as those in training."""
BEYOND = (2, 4, 8)
"""Windows of a language model that many times longer than trained are read too."""


def score_trial(run: Run, material: TrainingData, metric: str) -> dict[str, Any]:
    """Return split, items, scores, table by length and scores on longer text: fields of ``Trial``."""
    corpus = material.corpus
    split = find_test_split(corpus)
    if corpus.task == "language modelling":
        return {"split": split, **_score_language_model(run, material, split)}
    pairs = corpus.pairs(split)
    begun = time.perf_counter()
    evaluation = evaluate(run, pairs)
    written = sum(len(run.tokenizers.target(text.text)["input_ids"]) for text in evaluation.translations)
    longer = {name: _score_longer_pairs(run, corpus.pairs(name)) for name in corpus if name not in EXPLAINED}
    return {
        "split": split,
        "items": score_items(evaluation, pairs, metric),
        "other_items": {"chrf": score_items(evaluation, pairs, "chrf")} if metric == "bleu" else {},
        "groups": find_groups(pairs),
        **_summarise(evaluation),
        "written_per_second": round(written / (time.perf_counter() - begun), 1),
        "longer": longer,
    }


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


def _score_language_model(run: Run, material: TrainingData, split: str) -> dict[str, Any]:
    """Return the scores of a language model, on windows as long as in training and on longer ones."""
    documents, window = material.corpus.documents(split), int(getattr(material.train, "length", 128))
    evaluation = evaluate(run, documents, length=window)
    longer = {f"{times} × {window} tokens": _score_longer_text(run, documents, times * window) for times in BEYOND}
    return {"items": score_items(evaluation, [], "loss"), **_summarise(evaluation), "longer": longer}


def _summarise(evaluation: Evaluation) -> dict[str, Any]:
    """Return the scores of an evaluation, and its table by length: fields of ``Trial``."""
    return {
        "scores": {score.name: round(score.value, 4) for score in evaluation.scores},
        "by_length": (tuple(evaluation.by_length.columns), *map(tuple, evaluation.by_length.rows)),
    }


def _score_longer_text(run: Run, documents: Sequence[Any], window: int) -> LongerText:
    """Return the loss on longer windows, or the sentence that refused them.

    A scheme refuses positions, a table of positions ends, or the text is shorter than one window. Any other fault is
    the trial's: what the machine lacks would make the scores depend on the machine.
    """
    try:
        return _keep_finite(LongerText(loss=round(evaluate(run, documents, length=window).loss.mean, 4)))
    except (PositionError, ShortTextError, IndexError) as fault:
        # The folder of a trial tells nothing, and what comes after the reason is advice on options of `evaluate`.
        return LongerText(refused=str(fault).partition(";")[0].replace(str(run.path), "the model"))


def _score_longer_pairs(run: Run, pairs: Sequence[Pair]) -> LongerText:
    """Return exact match in percent, chrF and loss of longer pairs, or the sentence that refused them."""
    from sacrebleu.metrics.chrf import CHRF

    try:
        texts = [translation.text for translation in translate(run, [pair.source for pair in pairs])]
        loss = measure_pair_loss(run, list(pairs)).mean
    except (PositionError, IndexError) as fault:
        return LongerText(refused=str(fault))
    exact = [text.strip() == pair.target.strip() for text, pair in zip(texts, pairs, strict=True)]
    return _keep_finite(
        LongerText(
            exact=round(100 * sum(exact) / len(exact), 4),
            chrF2=round(CHRF().corpus_score(texts, [[pair.target for pair in pairs]]).score, 4),
            loss=round(loss, 4),
        )
    )


def _keep_finite(scores: LongerText) -> LongerText:
    """Return the scores, or that there are none where the loss is no number: logits overflowed."""
    if scores.loss is None or math.isfinite(scores.loss):
        return scores
    return LongerText(refused=f"its loss there is {scores.loss}")


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


TOKENIZATION = "13a"
"""How sacreBLEU splits the texts; one that is tokenised already is hardly changed by it."""


def linearise_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Float[np.ndarray, " N"]:
    """Return for each of N translations what it is to the BLEU of them all, in percent; their mean is that BLEU.

    Where no translation has an n-gram of some order, BLEU is 0, and so are all values.
    """
    from sacrebleu.metrics.bleu import BLEU

    whole = BLEU(tokenize=TOKENIZATION, force=True).corpus_score(list(hypotheses), [list(references)])
    if not whole.score:
        return np.zeros(len(hypotheses))
    single = BLEU(tokenize=TOKENIZATION, effective_order=True, force=True)
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
