"""Scores with their intervals: BLEU and chrF by sacreBLEU and its bootstrap, exact match, and the loss of examples.

``Evaluation`` holds what one evaluation gives of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clockhands.errors import DataError, UsageError, describe_unknown
from clockhands.findings import Table

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

    from clockhands.generation.translate import Translation


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
    from scipy.stats import binomtest

    interval = binomtest(int(is_exact_N.sum()), len(is_exact_N)).proportion_ci(0.95, "exact")
    low, high = 100 * float(interval.low), 100 * float(interval.high)
    return Score("exact", 100 * float(is_exact_N.mean()), low, high, "nrefs:1|ci:exact")


def match_exactly(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.bool_]:
    """Return for each of N translations whether it equals its reference, apart from white space at the ends."""
    return np.array([h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True)])


def bootstrap_mean_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Compute the 95 % percentile bootstrap interval of the mean of N values (Efron & Tibshirani 1993, chapter 13).

    If all values are equal, both ends are that value.
    """
    from scipy.stats import bootstrap

    if len(values) < 2 or np.ptp(values) == 0:
        return float(values.mean()), float(values.mean())
    result = bootstrap((values,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=SEED)
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


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
