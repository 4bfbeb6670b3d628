"""What an evaluation gives: scores with their intervals, the loss of every example, and a table of the loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clockhands.findings import Table
from clockhands.generation.score import Score, bootstrap_mean_interval
from clockhands.generation.translate import Translation

__all__ = ["Evaluation", "Loss"]


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
