"""Scores with their intervals: BLEU, chrF, exact match, and the loss of examples; and the loss of a language model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from clockhands.data import encode_documents
from clockhands.errors import DataError, ShortTextError, UsageError, describe_unknown
from clockhands.findings import Table
from clockhands.machine import format_bytes, measure_free_memory
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Int

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

    from clockhands.generation.translate import Translation
    from clockhands.models import LanguageModel


RESAMPLES = 1000
"""Resamples of a bootstrap interval."""
SEED = 12_345
"""The seed of the resampling; the default of sacreBLEU."""
BleuTokenization = Literal["13a", "none", "char", "intl", "zh", "ja-mecab"]
"""How sacreBLEU splits texts before it counts n-grams."""


@dataclass(frozen=True)
class Score:
    """A score with its 95 % interval: in percent, but a loss in nats per token, and a perplexity without a unit.

    Args:
        name: ``BLEU``, ``chrF2``, ``exact`` (exact match), ``loss`` or ``perplexity``.
        value: the score.
        low, high: the ends of its interval.
        signature: how the score was computed, in the form of sacreBLEU; that of a loss is its unit.
    """

    name: str
    value: float
    low: float
    high: float
    signature: str

    def __str__(self) -> str:
        decimals = {"loss": 3, "perplexity": 2}.get(self.name, 1)
        value, low, high = (f"{number:.{decimals}f}" for number in (self.value, self.low, self.high))
        return f"{self.name}|{self.signature} = {value} [{low}, {high}]"


def describe_uniform_guess(vocabulary_size: int) -> str:
    """Return a clause with the loss of a uniform distribution over the vocabulary, ln V in nats, for comparison."""
    loss = math.log(vocabulary_size)
    return f"a uniform guess among {vocabulary_size:,} tokens has a loss of {loss:.2f} (perplexity {vocabulary_size:,})"


def score_translations(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a", lowercase: bool = False
) -> list[Score]:
    """Score hypotheses against one reference each by BLEU, chrF and exact match, in percent.

    BLEU and chrF are computed by sacreBLEU, with the interval of its bootstrap (Koehn 2004; ``RESAMPLES`` resamples):
    the mean of the resampled scores plus and minus half the width of their 95 % range, so that ``value`` need not be
    its centre. Exact match has the exact interval of a share. ``tokenize`` and ``lowercase`` are options of sacreBLEU
    (``none``: the texts are tokenised already). Raises DataError if the two differ in number or there is nothing to
    score, UsageError for an unknown tokenization.
    """
    exact = compute_exact_match(hypotheses, references)
    from sacrebleu.metrics.chrf import CHRF

    scores = []
    metrics: list[Any] = [make_bleu(tokenize, lowercase=lowercase), CHRF(lowercase=lowercase)]
    for metric in metrics:  # of no type, because mypy refuses to replace a method

        def compute(statistics: Any, compute: Callable[[Any], Any] = metric._compute_score_from_stats) -> Any:
            # Where a resample scores 0, sacreBLEU mixes numbers of NumPy and Python, and cannot take their mean.
            result = compute(statistics)
            result.score = float(result.score)
            return result

        metric._compute_score_from_stats = compute
        result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=RESAMPLES)
        value, signature = float(result.score), str(metric.get_signature().format(short=True))
        # Of a single translation sacreBLEU makes no interval.
        mean, half_width = (result._mean, result._ci) if len(hypotheses) > 1 else (value, 0.0)
        scores.append(Score(str(result.name), value, float(mean - half_width), float(mean + half_width), signature))
    return [*scores, exact]


def make_bleu(tokenize: str, *, lowercase: bool) -> BLEU:
    """Make sacreBLEU's BLEU metric. Raises UsageError for a tokenization that is unknown or not installed."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in get_args(BleuTokenization):
        raise UsageError(describe_unknown("tokenization of sacreBLEU", tokenize, get_args(BleuTokenization)))
    try:
        return BLEU(tokenize=tokenize, lowercase=lowercase)
    except (ImportError, RuntimeError) as fault:
        # Japanese needs a package of its own, and sacreBLEU says which.
        raise UsageError(f"tokenization {tokenize} (--tokenize): {' '.join(str(fault).split())}") from fault


def compute_exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Compute the share of translations that equal their reference, in percent, with its exact interval.

    If all translations are right, or all are wrong, every resample of a bootstrap has the same share, however few there
    are; the exact interval (Clopper & Pearson 1934) depends on their number. Raises DataError as
    ``score_translations``.
    """
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} translations for {len(references)} references; they must be as many")
    if not hypotheses:
        raise DataError("there is nothing to score: no translation and no reference")
    is_exact_N = match_exactly(hypotheses, references)
    low, high = (100 * bound for bound in bound_share(float(is_exact_N.mean()), len(is_exact_N)))
    return Score("exact", 100 * float(is_exact_N.mean()), low, high, "nrefs:1|ci:exact")


def bound_share(share: float, count: float, alpha: float = 0.05) -> tuple[float, float]:
    """Return the interval of a binomial share (Clopper & Pearson 1934).

    ``count`` may be an effective number and ``share * count`` a fraction (Korn & Graubard 1998, "Confidence Intervals
    For Proportions With Small Expected Number of Positive Counts Estimated From Survey Data").

    >>> tuple(round(bound, 3) for bound in bound_share(1.0, 5))
    (0.478, 1.0)
    """
    from scipy.special import betaincinv  # the package of statistics takes as long to import as evaluating a small run

    # Quantiles of the beta distribution, which take fractions of hits where a binomial would not.
    hits, misses = count * share, count * (1 - share)
    low = float(betaincinv(hits, misses + 1, alpha / 2)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, misses, 1 - alpha / 2)) if misses > 0 else 1.0
    return low, high


def match_exactly(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.bool_]:
    """Return for each of N translations whether it equals its reference, apart from white space at the ends."""
    return np.array([h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True)])


def bootstrap_mean_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Compute the 95 % percentile bootstrap interval of the mean of N values (Efron & Tibshirani 1993, chapter 13).

    If all values are equal, both ends are that value; if one is no number, both are NaN.
    """
    if len(values) < 2 or np.ptp(values) == 0 or not np.isfinite(values).all():
        return float(values.mean()), float(values.mean())
    drawn_RN = np.random.default_rng(SEED).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.percentile(values[drawn_RN].mean(1), [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True)
class Loss:
    """The loss of a model on N examples, in nats.

    An example is a pair for a translator; for a language model it is a document, or a stretch of neighbouring windows
    where there are few documents.

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

        One number of each example is resampled, ``linearised_N``.
        """
        return bootstrap_mean_interval(self.linearised_N)

    @property
    def linearised_N(self) -> NDArray[np.float64]:
        """The mean, plus how far the loss of each example lies from what the mean expects of its tokens: [N].

        ``mean`` is a ratio of two sums, linearised around its value (Särndal et al. 1992, section 5.6).
        """
        return self.mean + (self.nats_N - self.mean * self.tokens_N) / self.tokens_N.mean()

    def to_score(self) -> Score:
        """Return the mean loss and its interval as a score."""
        return Score("loss", self.mean, *self.interval, "nats per token")


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` measured.

    Args:
        scores: of a translator, by their names, ``BLEU``, ``chrF2``, ``exact`` and ``loss``; of a language model,
            ``loss`` and ``perplexity``.
        loss: the loss of every example.
        by_length: a table of the loss by the length of the target; of a language model, which reads windows of one
            length, by the place of the predicted token in its window.
        translations: those of the sources, in order; empty for a language model.
        resampled: what the bootstrap resamples for the intervals of a language model, such as "12 documents"; empty for
            translations.
    """

    scores: tuple[Score, ...]
    loss: Loss
    by_length: Table
    translations: tuple[Translation, ...] = ()
    resampled: str = ""


MOST_WINDOWS = 32
"""The most windows that are read at a time where the caller gives no number."""
FEWEST_DOCUMENTS = 5
"""With fewer documents the intervals resample stretches of them: so few documents say little about how they vary."""
STRETCHES = 30
"""Into so many stretches of neighbouring windows few documents are cut. Windows that follow each other are of one
subject, and are no independent samples: over single windows of one file an interval is less than half as wide as it
should be (the block bootstrap; Künsch 1989)."""
LOGIT_BYTES = 8
"""Bytes for each token of the vocabulary at each place of a window: a logit and its log-probability, in float32."""
LOGIT_SHARE = 0.2
"""The share of the free memory that the logits and log-probabilities of a batch may take; the model needs the rest."""


@dataclass(frozen=True)
class EvaluationWindows:
    """Windows of a text, which may overlap, and which of their tokens count in the loss.

    Args:
        ids_NS: the tokens of each window, with those that begin every text in front.
        counted_NS: whether a token is predicted for the first time here; never the first of a window.
        documents_N: the number of the document in which each window begins.
    """

    ids_NS: Int[np.ndarray, "N S"]
    counted_NS: NDArray[np.bool_]
    documents_N: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids_NS)


def cut_evaluation_windows(
    model: LanguageModel, documents: Sequence[str], length: int, stride: int | None = None
) -> EvaluationWindows:
    """Cut documents into windows of ``length`` tokens that begin ``stride`` tokens apart.

    The documents are joined, each with the token that ends a text, if the tokenizer has one (``encode_documents``).
    Every window begins with what the tokenizer puts before a text, if anything. A token counts in the first window that
    predicts it. So every token counts once but the last few, which fill no window, and the first, if nothing stands
    before it; from the second window on a token has at least ``length - stride`` tokens before it. Without ``stride``
    the windows overlap as little as that allows.

    Raises UsageError for a length or stride out of range, ShortTextError for a text shorter than one window.
    """
    stream = encode_documents(model.tokenizer, documents)
    num_start = len(model.start_ids)
    text_length = length - num_start
    # Where nothing stands before a text, the first token of a window is read and not predicted.
    max_stride = text_length if num_start else text_length - 1
    if length < 2 or text_length < 1 or max_stride < 1:
        raise UsageError(f"length={length}; a window holds at least {max(2, num_start + 1)} tokens")
    if stride is not None and not 1 <= stride <= max_stride:
        raise UsageError(
            f"stride={stride}; windows of {length} tokens begin 1 to {max_stride} apart, or tokens are left out"
        )
    if len(stream.values) < text_length:
        raise ShortTextError(
            f"the text has {len(stream.values):,} tokens, less than one window of length={length}; give a shorter "
            "--length, or more text"
        )
    stride = max_stride if stride is None else stride
    begins_N = np.arange(0, len(stream.values) - text_length + 1, stride)
    ids_NS = stream.values[begins_N[:, None] + np.arange(text_length)]
    counted_NS = np.zeros((len(begins_N), length), np.bool_)
    counted_NS[:, -stride:] = True
    counted_NS[0] = True
    counted_NS[:, 0] = False
    before_NS = np.broadcast_to(np.asarray(model.start_ids, np.int64), (len(begins_N), num_start))
    documents_N = np.searchsorted(stream.offsets, begins_N, side="right") - 1
    return EvaluationWindows(np.concatenate([before_NS, ids_NS], axis=1).astype(np.int64), counted_NS, documents_N)


def choose_batch(model: LanguageModel, length: int) -> int:
    """Return how many windows to read at a time, so that their logits fit the memory; at most ``MOST_WINDOWS``.

    Raises UsageError where one does not fit.
    """
    window_bytes, free = LOGIT_BYTES * length * model.vocabulary_size, measure_free_memory(model.device)
    if window_bytes > free:
        raise UsageError(
            f"the logits of one window of {length:,} tokens need {format_bytes(window_bytes)} of memory with their "
            f"log-probabilities, and {format_bytes(free)} are free; give a shorter --length"
        )
    return max(1, min(MOST_WINDOWS, int(LOGIT_SHARE * free) // window_bytes))


def evaluate_windows(
    model: LanguageModel,
    documents: Sequence[str],
    length: int,
    *,
    stride: int | None = None,
    batch: int | None = None,
    buckets: int = 5,
    progress: CountProgress = ignore_count,
) -> Evaluation:
    """Measure loss and perplexity of a language model on documents: over all tokens, and by their place in a window.

    The intervals resample documents where windows begin in ``FEWEST_DOCUMENTS`` or more, else ``STRETCHES`` stretches
    of neighbouring windows. A text of no more windows than that is resampled window by window, which says too little
    of how they vary; ``resampled`` tells so.

    Args:
        model: the language model.
        documents: the texts.
        length, stride: as for ``cut_evaluation_windows``.
        batch: windows at a time; None: ``choose_batch``.
        buckets: the most rows of the table by place, at least 1.
        progress: called with what is counted, how many are done and how many there are.

    Raises UsageError for a ``batch`` below 1, and as ``cut_evaluation_windows`` and ``choose_batch``; PositionError for
    windows longer than the model's table of positions (``LanguageModel.compute_logits``) and for tokens beyond a
    scheme's last position.
    """
    windows = cut_evaluation_windows(model, documents, length, stride)
    if batch is not None and batch < 1:
        raise UsageError(f"batch={batch}; at least one window is read at a time")
    size, losses_NS = batch or choose_batch(model, length), np.zeros((len(windows), length - 1))
    for first in range(0, len(windows), size):
        progress("reading windows", first, len(windows))
        ids_BS = torch.from_numpy(windows.ids_NS[first : first + size])
        logits_BSV = model.compute_logits(ids_BS)[:, :-1]
        labels_BS = ids_BS[:, 1:].to(logits_BSV.device)
        loss_BS = F.cross_entropy(logits_BSV.transpose(1, 2), labels_BS, reduction="none")
        losses_NS[first : first + size] = loss_BS.double().cpu().numpy()
    progress("reading windows", len(windows), len(windows))
    losses_NS[~windows.counted_NS[:, 1:]] = 0.0
    loss, resampled = _group_windows(losses_NS, windows)
    low, high = loss.interval
    signature = f"window:{length}" + (f"|stride:{stride}" if stride is not None else "")
    perplexity = Score("perplexity", math.exp(loss.mean), math.exp(low), math.exp(high), signature)
    # By the place of a token in its window; places at which nothing counts are left out.
    places, rows = losses_NS.shape[1], []
    for first, last in pairwise(np.linspace(0, places, min(buckets, places) + 1).astype(int)):
        tokens = int(windows.counted_NS[:, 1 + first : 1 + last].sum())
        if tokens:
            mean = float(losses_NS[:, first:last].sum()) / tokens
            rows.append([f"{first + 1}-{last}", tokens, mean, math.exp(mean)])
    table = Table.of(["place in window", "tokens", "loss per token", "perplexity"], rows)
    return Evaluation((loss.to_score(), perplexity), loss, table, resampled=resampled)


def _group_windows(losses_NS: Float[np.ndarray, "N S-1"], windows: EvaluationWindows) -> tuple[Loss, str]:
    """Return the loss of each document, or of each stretch where documents are few, and how many there are, as text.

    That of a document is the loss of the windows that begin in it; the last of them may go on into the next document.
    """
    nats_N, tokens_N = losses_NS.sum(1), windows.counted_NS.sum(1)
    _, groups_N = np.unique(windows.documents_N, return_inverse=True)
    count = int(groups_N.max()) + 1
    resampled = f"{count:,} documents"
    if count < FEWEST_DOCUMENTS:
        count = min(len(windows), STRETCHES)
        groups_N = np.arange(len(windows)) * count // len(windows)
        resampled = f"{count:,} stretches of neighbouring windows, {len(windows):,} windows in all"
        if len(windows) <= STRETCHES:
            resampled = f"{count} windows; as neighbours they are alike, so that intervals are too narrow"
            resampled = resampled if count > 1 else "1 window"
    return Loss(
        np.bincount(groups_N, nats_N, count).astype(np.float64), np.bincount(groups_N, tokens_N, count).astype(np.int64)
    ), resampled
