"""Evaluation of a run on text that it was not trained on: scores of translations, and the loss per token by length."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from clockhands.data import IGNORED, Pair, encode_pairs, encode_stream
from clockhands.data.collate import Batch, PairCollator, WindowCollator
from clockhands.data.encoding import LONGEST, Example, WindowDataset
from clockhands.errors import DataError
from clockhands.findings import Table
from clockhands.generation.score import Score, compute_interval, make_bleu, match_exactly, score_translations
from clockhands.generation.translate import Search, Translation, translate
from clockhands.progress import CountProgress, ignore_count
from clockhands.runs import Run, open_run
from clockhands.shapes import Float, Tensor

__all__ = ["Evaluation", "Loss", "compute_token_losses", "evaluate", "measure_pair_loss"]

WINDOW_BATCH = 32
"""The number of windows that a language model reads at a time."""


@dataclass(frozen=True)
class Loss:
    """The loss of a model on N examples, in nats.

    Args:
        nats_N: the sum of the token losses of each example.
        tokens_N: the number of tokens of each example that are predicted.
    """

    nats_N: NDArray[np.float64]
    tokens_N: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """The mean loss of a token, over all tokens of all examples, in nats."""
        return float(self.nats_N.sum() / self.tokens_N.sum())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % bootstrap interval of ``mean``, by resampling examples.

        ``mean`` is a ratio of two sums. It is linearised around its value (Särndal et al. 1992, section 5.6), so that
        one number of each example can be resampled.
        """
        residual_N = (self.nats_N - self.mean * self.tokens_N) / self.tokens_N.mean()
        low, high = compute_interval(residual_N)
        return self.mean + low, self.mean + high

    def to_score(self) -> Score:
        """Return the mean loss and its interval as a score."""
        return Score("loss", self.mean, *self.interval, "nats per token")


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` measured.

    Args:
        scores: each with its interval: BLEU, chrF, exact match and loss, or loss and perplexity of a language model.
        loss: the loss of every example.
        by_length: a table of the loss by the length of the target, or by the index within a window.
        translations: those of the sources, in order; empty for a language model.
    """

    scores: tuple[Score, ...]
    loss: Loss
    by_length: Table
    translations: tuple[Translation, ...] = ()


def evaluate(
    run: str | Path | Run,
    text: Sequence[Pair] | Sequence[str],
    *,
    search: Search | None = None,
    tokenize: str = "13a",
    lowercase: bool = False,
    length: int | None = None,
    buckets: int = 5,
    progress: CountProgress = ignore_count,
) -> Evaluation:
    """Evaluate a translator on pairs, or a language model on documents.

    A language model reads windows of ``length`` tokens; tokens at the end that fill no window are left out. The last
    token of a window is the first of the next, so that no token is predicted twice.

    Args:
        run: the model.
        text: pairs, whose targets are the references, or documents.
        search: how to translate; None: greedily.
        tokenize, lowercase: options of sacreBLEU (``score_translations``).
        length: the tokens of a window, at least 2; None: 128.
        buckets: the most rows of the table by length. That of a language model is by the index of a predicted token in
            its window, 1 to ``length - 1``.
        progress: called with what is counted, how many are done and how many there are.

    Raises UsageError if the text does not suit the model and for a ``length`` below 2, DataError if there is no text or
    if pairs and documents are mixed.
    """
    run = open_run(run)
    if not text:
        raise DataError("there is no text to evaluate on")
    if len({isinstance(part, Pair) for part in text}) > 1:
        raise DataError("the text mixes pairs and documents; evaluate them one after the other")
    if isinstance(text[0], Pair):
        run.require("encoder-decoder", "evaluate translations")
        make_bleu(tokenize, lowercase=lowercase)  # An unknown tokenization is refused before anything is translated.
        pairs = [pair for pair in text if isinstance(pair, Pair)]
        return _evaluate_pairs(run, pairs, search or Search(), tokenize, lowercase, buckets, progress)
    run.require("decoder", "evaluate continuations")
    length = 128 if length is None else length
    return _evaluate_stream(
        run, [document for document in text if isinstance(document, str)], length, buckets, progress
    )


def _evaluate_pairs(
    run: Run,
    pairs: list[Pair],
    search: Search,
    tokenize: str,
    lowercase: bool,
    buckets: int,
    progress: CountProgress,
) -> Evaluation:
    """Translate the sources, score the translations, and measure the loss of the targets."""
    translations: list[Translation] = []
    progress("translating", 0, len(pairs))
    for translation in translate(run, [pair.source for pair in pairs], search):
        translations.append(translation)
        progress("translating", len(translations), len(pairs))
    references = [pair.target for pair in pairs]
    texts = [translation.text for translation in translations]
    scores = score_translations(texts, references, tokenize=tokenize, lowercase=lowercase)
    loss = measure_pair_loss(run, pairs, search.batch, search.max_source, progress)
    exact_N = match_exactly(texts, references)
    table = _tabulate_by_length(loss, exact_N, buckets)
    return Evaluation((*scores, loss.to_score()), loss, table, tuple(translations))


def measure_pair_loss(
    run: Run,
    pairs: Sequence[Pair],
    batch: int = 64,
    max_length: int = LONGEST,
    progress: CountProgress = ignore_count,
) -> Loss:
    """Measure the loss of each target given its source, ``batch`` pairs at a time.

    Both are cut to ``max_length`` tokens; a ClockhandsWarning says how many were cut. ``progress`` is called as in
    ``evaluate``.
    """
    dataset = encode_pairs(pairs, run.tokenizers, max_length=max_length, longer="cut", option="max_source")
    order = np.argsort(dataset.lengths.max(axis=1), kind="stable")
    collate = PairCollator(run.tokenizers.source.pad_token_id)
    nats_N, tokens_N = np.zeros(len(order)), np.zeros(len(order), np.int64)
    for number, indices in enumerate(_split_indices(order, batch)):
        progress("measuring the loss", number * batch, len(order))
        loss_BS = compute_token_losses(run, collate([dataset[int(i)] for i in indices]))
        nats_N[indices] = loss_BS.sum(-1).cpu().numpy()
        tokens_N[indices] = dataset.lengths[indices, 1]
    return Loss(nats_N, tokens_N)


@torch.inference_mode()
def compute_token_losses(run: Run, batch: Batch) -> Float[Tensor, "B S"]:
    """Compute the loss of every label in nats, and 0 for labels that are ignored.

    The result has the shape of the labels, [B, S]. A language model predicts each token from those before it, so the
    first label of each row is left out, and the shape is [B, S - 1].
    """
    batch = {name: value.to(run.model.device) for name, value in batch.items()}
    labels_BS = batch["labels"]
    inputs = batch if run.architecture == "encoder-decoder" else {k: v for k, v in batch.items() if k != "labels"}
    # Without labels a decoder makes a KV cache, which nothing continues here.
    options = {"use_cache": False} if run.architecture == "decoder" else {}
    logits_BSV = run.model(**inputs, **options).logits.float()
    if run.architecture == "decoder":
        logits_BSV, labels_BS = logits_BSV[:, :-1], labels_BS[:, 1:]
    return F.cross_entropy(logits_BSV.transpose(1, 2), labels_BS, ignore_index=IGNORED, reduction="none")


def _evaluate_stream(run: Run, documents: list[str], length: int, buckets: int, progress: CountProgress) -> Evaluation:
    """Measure the loss of every window of ``length`` tokens, and its mean by the index within the window."""
    stream = encode_stream(run.tokenizers.source, documents)
    windows = WindowDataset(stream, length)
    parts: list[NDArray[np.float32]] = []
    for examples in _batch_examples(windows, WINDOW_BATCH):
        progress("reading windows", WINDOW_BATCH * len(parts), len(windows))
        parts.append(compute_token_losses(run, WindowCollator()(examples)).cpu().numpy())
    loss_NS = np.concatenate(parts)
    loss = Loss(loss_NS.sum(1).astype(np.float64), np.full(len(loss_NS), loss_NS.shape[1]))
    edges = np.linspace(0, loss_NS.shape[1], min(buckets, loss_NS.shape[1]) + 1).astype(int)
    rows = [
        [f"{low + 1}-{high}", (high - low) * len(loss_NS), float(part.mean()), math.exp(float(part.mean()))]
        for low, high in pairwise(edges)
        for part in [loss_NS[:, low:high]]
    ]
    low, high = loss.interval
    perplexity = Score("perplexity", math.exp(loss.mean), math.exp(low), math.exp(high), f"window:{length}")
    table = Table.of(["place in window", "tokens", "loss per token", "perplexity"], rows)
    return Evaluation((loss.to_score(), perplexity), loss, table)


def _tabulate_by_length(loss: Loss, exact_N: NDArray[np.bool_], buckets: int) -> Table:
    """Tabulate loss and exact match by target length, in buckets that hold about equally many pairs."""
    # A bucket holds the lengths above one edge, up to and including the next; if all are equal there is one bucket.
    edges = np.unique(np.quantile(loss.tokens_N, np.linspace(0, 1, buckets + 1), method="nearest"))
    rows = []
    for low, high in zip([edges[0] - 1, *edges[1:-1]], edges[1:] if len(edges) > 1 else edges, strict=True):
        inside_N = (loss.tokens_N > low) & (loss.tokens_N <= high)
        if inside_N.any():
            part = Loss(loss.nats_N[inside_N], loss.tokens_N[inside_N])
            rows.append([f"{low + 1}-{high}", int(inside_N.sum()), part.mean, 100 * float(exact_N[inside_N].mean())])
    return Table.of(["target tokens", "pairs", "loss per token", "exact match %"], rows)


def _split_indices(order: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    """Yield indices in arrays of ``size``; the last may be shorter."""
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _batch_examples(dataset: WindowDataset, size: int) -> Iterator[list[Example]]:
    """Yield the windows of a data set in lists of ``size``; the last may be shorter."""
    for start in range(0, len(dataset), size):
        yield [dataset[i] for i in range(start, min(start + size, len(dataset)))]
