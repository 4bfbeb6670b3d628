"""What a search keeps while it writes: texts of a greedy search, and the hypotheses and finished texts of a beam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from clockhands.generation.engines.engine import DecodedSequence
from clockhands.shapes import Bool, Float, Int, Tensor

COMPACT_FRACTION = 1 / 8
"""Finished rows are dropped from the batch once they are this fraction of it, as dropping them costs a copy."""

Candidates = tuple[Tensor, Tensor, Tensor]
"""Log-probabilities, the hypotheses that are continued, and the tokens: each [B, C], likeliest first."""


@dataclass
class Draft:
    """A text that a greedy search writes token by token."""

    tokens: list[int] = field(default_factory=list)
    total: float = 0.0
    done: bool = False

    def add(self, token: int, log_probability: float, ends: list[int]) -> None:
        """Add a token, unless the text has ended."""
        if not self.done:
            self.tokens.append(token)
            self.total += log_probability
            self.done = token in ends


@dataclass
class FinishedHypotheses:
    """The W best finished texts of a source: (score, tokens, log-probability), best first."""

    width: int
    length_penalty: float
    texts: list[tuple[float, list[int], float]] = field(default_factory=list)
    done: bool = False

    def score(self, total: float, length: int) -> float:
        """Return the score by which texts are ranked."""
        return total / length**self.length_penalty

    def add(self, tokens: list[int], total: float) -> None:
        """Add a text that has ended."""
        self.texts.append((self.score(total, len(tokens)), tokens, total))
        self.texts.sort(key=lambda text: -text[0])
        del self.texts[self.width :]

    def settle(self, total: float, length: int) -> None:
        """Mark the source as done if its likeliest hypothesis cannot be better than the worst finished text."""
        full = len(self.texts) == self.width
        self.done = self.done or (full and self.score(total, length) <= self.texts[-1][0])

    def best(self) -> DecodedSequence:
        """Return the best text."""
        _, tokens, total = self.texts[0]
        return DecodedSequence(tokens, total)


def choose_rows_to_keep(rows: Sequence[Draft | FinishedHypotheses]) -> list[int]:
    """Return the indices of unfinished rows, or of all rows while fewer than ``COMPACT_FRACTION`` are finished.

    Empty once all are finished.
    """
    unfinished = [row for row, text in enumerate(rows) if not text.done]
    few = len(rows) - len(unfinished) < COMPACT_FRACTION * len(rows)
    return list(range(len(rows))) if few else unfinished


@dataclass(frozen=True)
class BeamState:
    """The hypotheses of every source, likeliest first; ``parents_BW`` are those of the last step that they continue."""

    written_BWS: Int[Tensor, "B W S"]
    tokens_BW: Int[Tensor, "B W"]
    total_BW: Float[Tensor, "B W"]
    parents_BW: Int[Tensor, "B W"] | None

    @classmethod
    def start(cls, batch: int, width: int, first: int, device: torch.device) -> BeamState:
        """Begin with W equal hypotheses. Only one may be continued, or else each would yield the same candidates."""
        total_BW = torch.full((batch, width), -torch.inf, device=device)
        total_BW[:, 0] = 0
        written = torch.empty(batch, width, 0, dtype=torch.long, device=device)
        return cls(written, torch.full((batch, width), first, device=device), total_BW, None)

    def advance(self, candidates: Candidates, ending_BC: Bool[Tensor, "B C"]) -> BeamState:
        """Return the beam of the likeliest candidates that do not end."""
        total_BC, parent_BC, token_BC = candidates
        total_BW, place_BW = total_BC.masked_fill(ending_BC, -torch.inf).topk(len(self.tokens_BW[0]))
        parents_BW, tokens_BW = parent_BC.gather(1, place_BW), token_BC.gather(1, place_BW)
        written_BWS = self.written_BWS.take_along_dim(parents_BW[..., None], dim=1)
        return BeamState(torch.cat([written_BWS, tokens_BW[..., None]], dim=2), tokens_BW, total_BW, parents_BW)

    def select(self, rows: Int[Tensor, " R"]) -> BeamState:
        """Return the hypotheses of some sources."""
        parents_BW = None if self.parents_BW is None else self.parents_BW[rows]
        return BeamState(self.written_BWS[rows], self.tokens_BW[rows], self.total_BW[rows], parents_BW)


def collect(
    rows: list[FinishedHypotheses], beam: BeamState, candidates: Candidates, ending_BC: Bool[Tensor, "B C"]
) -> None:
    """Add every text that ends among the first W candidates to the finished texts of its source."""
    total_BC, parent_BC, token_BC = candidates
    for row, place in ending_BC[:, : beam.tokens_BW.shape[1]].nonzero().tolist():
        if not rows[row].done:
            written = beam.written_BWS[row, parent_BC[row, place]].tolist()
            rows[row].add([*written, int(token_BC[row, place])], float(total_BC[row, place]))
