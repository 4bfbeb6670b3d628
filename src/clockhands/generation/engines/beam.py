"""The state of a search: the hypotheses of a greedy search, and the hypotheses and finished texts of a beam.

Axes beside those of ``shapes``: W hypotheses of a source (``beam``), C candidates of a source, R sources that stay in
the batch. S counts the tokens written so far.
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
    "choose_sources_to_keep",
]

COMPACT_FRACTION = 1 / 8
"""Finished sources are dropped from the batch once they are this fraction of it; dropping copies all others."""


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
    """The finished texts of one source with the highest scores, at most ``beam`` of them, the best first.

    Each text is a tuple of its score, its token ids and its log-probability.
    """

    beam: int
    length_penalty: float
    texts: list[tuple[float, list[int], float]] = field(default_factory=list)
    is_done: bool = False

    def score(self, log_probability: float, length: int) -> float:
        """Return the score of a text of ``length`` tokens, by which texts are ranked."""
        return log_probability / length**self.length_penalty

    def add(self, tokens: list[int], log_probability: float) -> None:
        """Add a text that has ended; the worst is dropped if there are more than ``beam``."""
        self.texts.append((self.score(log_probability, len(tokens)), tokens, log_probability))
        self.texts.sort(key=lambda text: -text[0])
        del self.texts[self.beam :]

    def finish_if_beaten(self, log_probability: float, length: int) -> None:
        """Set ``is_done`` if there are ``beam`` texts and the likeliest hypothesis scores no better than the worst.

        ``log_probability`` and ``length`` are those of that hypothesis, which is scored as if it ended here.
        """
        full = len(self.texts) == self.beam
        self.is_done = self.is_done or (full and self.score(log_probability, length) <= self.texts[-1][0])

    def get_best(self) -> DecodedSequence:
        """Return the text with the highest score."""
        _, tokens, log_probability = self.texts[0]
        return DecodedSequence(tokens, log_probability)


def choose_sources_to_keep(searches: Sequence[GreedyHypothesis | FinishedTexts]) -> list[int]:
    """Return the indices of unfinished sources, or of all while fewer than ``COMPACT_FRACTION`` are finished.

    ``searches``: the state of the search for each source. The result is empty once all are finished.
    """
    unfinished = [index for index, search in enumerate(searches) if not search.is_done]
    few_finished = len(searches) - len(unfinished) < COMPACT_FRACTION * len(searches)
    return list(range(len(searches))) if few_finished else unfinished


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
    def start(cls, batch: int, beam: int, start_token: int, device: torch.device) -> BeamState:
        """Return the state before the first step: W equal hypotheses.

        All but the first have probability 0, or else each would yield the same candidates.
        """
        log_p_BW = torch.full((batch, beam), -torch.inf, device=device)
        log_p_BW[:, 0] = 0
        written_BWS = torch.empty(batch, beam, 0, dtype=torch.long, device=device)
        return cls(written_BWS, torch.full((batch, beam), start_token, device=device), log_p_BW, None)

    def advance(self, candidates: Candidates, ending_BC: Bool[Tensor, "B C"]) -> BeamState:
        """Return the state after a step: the W likeliest candidates that do not end.

        ``ending_BC`` is True for a candidate whose text ends with its new token.
        """
        beam = self.last_token_BW.shape[1]
        log_p_BW, index_BW = candidates.log_p_BC.masked_fill(ending_BC, -torch.inf).topk(beam)
        parents_BW = candidates.parent_BC.gather(1, index_BW)
        token_BW = candidates.token_BC.gather(1, index_BW)
        written_BWS = self.written_BWS.take_along_dim(parents_BW[..., None], dim=1)
        return BeamState(torch.cat([written_BWS, token_BW[..., None]], dim=2), token_BW, log_p_BW, parents_BW)

    def select(self, sources_R: Int[Tensor, " R"]) -> BeamState:
        """Return the state of these sources alone."""
        parents_BW = None if self.parents_BW is None else self.parents_BW[sources_R]
        written_BWS, log_p_BW = self.written_BWS[sources_R], self.log_p_BW[sources_R]
        return BeamState(written_BWS, self.last_token_BW[sources_R], log_p_BW, parents_BW)


def add_finished(
    finished: list[FinishedTexts], hypotheses: BeamState, candidates: Candidates, ending_BC: Bool[Tensor, "B C"]
) -> None:
    """Add every text that ends among the first W candidates to the finished texts of its source.

    ``hypotheses`` are those before the step that gave the candidates; ``ending_BC`` is True for a candidate whose text
    ends with its new token.
    """
    beam = hypotheses.last_token_BW.shape[1]
    for source, index in ending_BC[:, :beam].nonzero().tolist():
        if not finished[source].is_done:
            written = hypotheses.written_BWS[source, candidates.parent_BC[source, index]].tolist()
            tokens = [*written, int(candidates.token_BC[source, index])]
            finished[source].add(tokens, float(candidates.log_p_BC[source, index]))
