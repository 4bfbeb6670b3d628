"""The state of a search: the hypotheses of a greedy search, and the hypotheses and finished texts of a beam.

Axes beside those of ``shapes``: W hypotheses of a source (the width of the beam), C candidates of a source, R rows that
stay in the batch. S counts the tokens written so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from clockhands.generation.engines.engine import DecodedSequence
from clockhands.shapes import Bool, Float, Int, Tensor

__all__ = [
    "COMPACT_FRACTION",
    "BeamState",
    "Candidates",
    "FinishedTexts",
    "GreedyHypothesis",
    "add_finished",
    "choose_rows_to_keep",
]

COMPACT_FRACTION = 1 / 8
"""Finished rows are dropped from the batch once they are this fraction of it, not earlier: that copies all others."""


class Candidates(NamedTuple):
    """Continuations of the hypotheses of each source by one token, the likeliest first.

    ``log_p_BC`` is the natural log-probability of the whole text, ``parent_BC`` the number of the hypothesis that is
    continued, from 0 to W - 1, and ``token_BC`` the id of the new token.
    """

    log_p_BC: Float[Tensor, "B C"]
    parent_BC: Int[Tensor, "B C"]
    token_BC: Int[Tensor, "B C"]


@dataclass
class GreedyHypothesis:
    """The text that a greedy search writes for one source, and the sum of its tokens' log-probabilities."""

    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    is_done: bool = False

    def add(self, token: int, log_probability: float, end_tokens: list[int]) -> None:
        """Add a token, unless the text has ended; an end token ends it."""
        if not self.is_done:
            self.tokens.append(token)
            self.log_probability += log_probability
            self.is_done = token in end_tokens


@dataclass
class FinishedTexts:
    """The finished texts of one source with the highest scores, at most ``width`` of them, the best first.

    Each text is a tuple of its score, its token ids and its log-probability.
    """

    width: int
    length_penalty: float
    texts: list[tuple[float, list[int], float]] = field(default_factory=list)
    is_done: bool = False

    def score(self, log_probability: float, length: int) -> float:
        """Return the score of a text of ``length`` tokens, by which texts are ranked."""
        return log_probability / length**self.length_penalty

    def add(self, tokens: list[int], log_probability: float) -> None:
        """Add a text that has ended; the worst is dropped if there are more than ``width``."""
        self.texts.append((self.score(log_probability, len(tokens)), tokens, log_probability))
        self.texts.sort(key=lambda text: -text[0])
        del self.texts[self.width :]

    def finish_if_beaten(self, log_probability: float, length: int) -> None:
        """Set ``is_done`` if there are ``width`` texts and the likeliest hypothesis scores no better than the worst.

        ``log_probability`` and ``length`` are those of that hypothesis, which is scored as if it ended here.
        """
        full = len(self.texts) == self.width
        self.is_done = self.is_done or (full and self.score(log_probability, length) <= self.texts[-1][0])

    def get_best(self) -> DecodedSequence:
        """Return the text with the highest score."""
        _, tokens, log_probability = self.texts[0]
        return DecodedSequence(tokens, log_probability)


def choose_rows_to_keep(rows: Sequence[GreedyHypothesis | FinishedTexts]) -> list[int]:
    """Return the indices of unfinished rows, or of all rows while fewer than ``COMPACT_FRACTION`` are finished.

    Empty once all are finished.
    """
    unfinished = [index for index, row in enumerate(rows) if not row.is_done]
    few_finished = len(rows) - len(unfinished) < COMPACT_FRACTION * len(rows)
    return list(range(len(rows))) if few_finished else unfinished


@dataclass(frozen=True)
class BeamState:
    """The W hypotheses of every source, the likeliest first.

    Args:
        written_BWS: the token ids of each hypothesis so far.
        last_token_BW: the last of them, which the decoder has not read yet; at the start the start token.
        log_p_BW: the natural log-probability of each hypothesis.
        parents_BW: which hypothesis of the step before each continues; None at the start.
    """

    written_BWS: Int[Tensor, "B W S"]
    last_token_BW: Int[Tensor, "B W"]
    log_p_BW: Float[Tensor, "B W"]
    parents_BW: Int[Tensor, "B W"] | None

    @classmethod
    def start(cls, batch: int, width: int, start_token: int, device: torch.device) -> BeamState:
        """Return the state before the first step: W equal hypotheses.

        All but the first have probability 0, or else each would yield the same candidates.
        """
        log_p_BW = torch.full((batch, width), -torch.inf, device=device)
        log_p_BW[:, 0] = 0
        written_BWS = torch.empty(batch, width, 0, dtype=torch.long, device=device)
        return cls(written_BWS, torch.full((batch, width), start_token, device=device), log_p_BW, None)

    def advance(self, candidates: Candidates, ending_BC: Bool[Tensor, "B C"]) -> BeamState:
        """Return the state after a step: the W likeliest candidates that do not end."""
        width = self.last_token_BW.shape[1]
        log_p_BW, index_BW = candidates.log_p_BC.masked_fill(ending_BC, -torch.inf).topk(width)
        parents_BW = candidates.parent_BC.gather(1, index_BW)
        token_BW = candidates.token_BC.gather(1, index_BW)
        written_BWS = self.written_BWS.take_along_dim(parents_BW[..., None], dim=1)
        return BeamState(torch.cat([written_BWS, token_BW[..., None]], dim=2), token_BW, log_p_BW, parents_BW)

    def select(self, rows: Int[Tensor, " R"]) -> BeamState:
        """Return the state of these sources alone."""
        parents_BW = None if self.parents_BW is None else self.parents_BW[rows]
        return BeamState(self.written_BWS[rows], self.last_token_BW[rows], self.log_p_BW[rows], parents_BW)


def add_finished(
    rows: list[FinishedTexts], beam: BeamState, candidates: Candidates, ending_BC: Bool[Tensor, "B C"]
) -> None:
    """Add every text that ends among the first W candidates to the finished texts of its source.

    ``beam`` is the state before the step that gave the candidates.
    """
    width = beam.last_token_BW.shape[1]
    for row, index in ending_BC[:, :width].nonzero().tolist():
        if not rows[row].is_done:
            written = beam.written_BWS[row, candidates.parent_BC[row, index]].tolist()
            tokens = [*written, int(candidates.token_BC[row, index])]
            rows[row].add(tokens, float(candidates.log_p_BC[row, index]))
