"""A runtime on the bench: the texts it reads, its reference in torch, and how far its own arithmetic moves scores."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clockhands.checking.checks.check import TOLERANCE, Inapplicable
from clockhands.checking.runtimes.reference import Reference
from clockhands.checking.runtimes.runtime import WHOLE, Runtime, Way

Scores = list[list[float]]
LENGTH = 48
MARGIN = 4.0  # a difference counts from so many times what the arithmetic does by itself
_ADDED = 0.1  # where position is added to the first tokens too
_MOST = 0.25  # where it is not
_SHORT = 64  # texts of two tokens


@dataclass(frozen=True)
class Bench:
    """A runtime under check, with its reference if there is one. ``seed`` draws the texts."""

    runtime: Runtime
    reference: Reference | None = None
    seed: int = 0

    def redraw(self) -> Bench:
        """Return the same bench with other texts."""
        return replace(self, seed=self.seed + 1)

    def get_reference(self) -> Reference:
        """Return the reference. Raises Inapplicable, with what to do, where there is none."""
        if self.reference is None:
            raise Inapplicable("there is no reference: name one with --against")
        return self.reference

    @property
    def limit(self) -> int | None:
        """The longest text that the model claims to read, as far as that is known."""
        limits = [self.runtime.limit, None if self.reference is None else self.reference.limit]
        return min((limit for limit in limits if limit), default=None)

    @property
    def length(self) -> int:
        """How long texts are by default."""
        return min(LENGTH, self.limit or LENGTH)

    def draw(self, rows: int, length: int, salt: int = 0) -> list[list[int]]:
        """Return random texts; no token stands twice in one if they suffice, and none is of the first ten."""
        rng = random.Random(f"{self.seed}:{salt}")
        usable = range(10 if self.runtime.vocabulary > 30 else 0, self.runtime.vocabulary)
        pick = rng.sample if length <= len(usable) else rng.choices
        return [list(pick(usable, k=length)) for _ in range(rows)]

    def score(self, text: list[int], way: Way = WHOLE) -> list[float]:
        """Return the scores of one text."""
        return self.runtime.score([text], way)[0]

    @cached_property
    def scale(self) -> float:
        """The standard deviation of the log-probabilities of random tokens, about that of the logits."""
        scores = self.runtime.score(self.draw(4, self.length, salt=90))
        return max(float(np.std(np.concatenate(scores))), 1e-12)

    def difference(self, actual: list[float], wanted: list[float]) -> float:
        """Return the largest difference of scores, in ``scale``."""
        if len(actual) != len(wanted):
            return float("inf")
        size = float(np.max(np.abs(np.subtract(actual, wanted)), initial=0.0)) / self.scale
        return size if size == size else float("inf")

    @cached_property
    def floor(self) -> float:
        """How far the runtime's own arithmetic moves scores: by repetition, another batch size, and what is beside.

        Quantised products share a scale among all that is read in one call. So the same tokens are read with other
        tokens after them, and with other texts beside them; the smaller of both counts, so that a fault in one of them
        is not taken for arithmetic.
        """
        text, *mates = self.draw(5, self.length, salt=91)
        half = len(text) // 2
        wanted = self.score(text)
        noise = self.difference(self.score(text), wanted)
        changes = [
            max(
                self.difference(self.score(text[:half] + mate[half:])[: half - 1], wanted[: half - 1]) for mate in mates
            )
        ]
        if "together" in self.runtime.offers:
            together = Way(together=True)
            noise = max(noise, self.difference(self.runtime.score([text, text], together)[0], wanted))
            beside = [self.runtime.score([text, mate], together)[0] for mate in mates]
            changes.append(max(self.difference(scores, wanted) for scores in beside))
        return max(noise, min(changes))

    @property
    def tolerance(self) -> float:
        """The difference from which on a law is broken."""
        return max(TOLERANCE, MARGIN * self.floor)

    @cached_property
    def reference_floor(self) -> float:
        """How far rounding and quantised weights move the scores from the reference's, where position plays no part.

        That is the second token of a text: it attends to the first alone, however both are rotated. What is more than
        the weights of a useful model can do is not taken for rounding: other weights, or a position that is added.
        """
        reference = self.get_reference()
        texts = self.draw(_SHORT, 2, salt=92)
        pairs = zip(self.runtime.score(texts), reference.score(texts), strict=True)
        sizes = [self.difference(actual, wanted) for actual, wanted in pairs]
        most = _ADDED if reference.subject.facts.absolute else _MOST
        return max(self.floor, min(most, float(np.quantile(sizes, 0.95))))

    @property
    def reference_tolerance(self) -> float:
        """The difference from which on scores are not those of the reference; without one, ``tolerance``."""
        return self.tolerance if self.reference is None else max(self.tolerance, MARGIN * self.reference_floor)
