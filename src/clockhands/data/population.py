"""Populations that corpora draw from, and the best score on them without the order of the tokens.

A bag tells which tokens a text has and how often, and nothing else. All sources with the same bag look the same to a
model that ignores order, so that it answers all of them alike: at best with the answer that is right most often among
them. The **order-blind ceiling** is the share that is then right, over the population.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from clockhands.devices import require_memory
from clockhands.errors import UsageError
from clockhands.reading import BYTES_A_LINE


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation.

    ``group``: pairs with the same number belong together, such as twins that differ only in the order of their words,
    and statistics resample them together; a pair with None belongs to no other. ``==`` does not compare groups.
    """

    source: str
    target: str
    group: int | None = field(default=None, compare=False)


Bags: TypeAlias = Callable[[Sequence[str]], NDArray[np.uint64]]
"""One number for each text: the same for texts with the same bag of tokens, and for no others (but by a chance of
2^-64); that of a text cut in two is the sum of both, where no token crosses the cut."""
DRAWS = 400
SAYS_NOTHING = 0.99
"""The share above which the ceiling bounds nothing: of real text, most bags of tokens stand there once."""
NORMAL = 1.96
"""Standard errors on both sides of a mean that hold 95 % of a normal distribution."""


@dataclass(frozen=True)
class Ceiling:
    """The largest share of items, 0 to 1, that can be got right without order, and over what it was computed.

    ``low`` and ``high``: its 95 % interval where items were drawn, else the share itself. ``noun``: what is got right.
    """

    share: float
    low: float
    high: float
    population: str
    noun: str = "items"

    @property
    def sentence(self) -> str:
        """The ceiling in one sentence, and over what it was computed."""
        if self.share > SAYS_NOTHING:
            return (
                f"A model that ignores word order could get nearly all of these {self.noun} right ({self.population}): "
                "hardly any two have the same tokens in another order and different answers, so that this is no bound."
            )
        drawn = "" if self.low == self.high else f"; 95 % interval {100 * self.low:.1f} to {100 * self.high:.1f}"
        return (
            f"A model that ignores word order can get at most {100 * self.share:.1f} % of these {self.noun} right "
            f"({self.population}{drawn})."
        )


@runtime_checkable
class Population(Protocol):
    """Everything that a corpus can draw; it computes the order-blind ceiling over it."""

    def measure(self, bags: Bags) -> Ceiling | None:
        """Return the ceiling for a tokenizer; None where it cannot be computed in this way."""
        ...


@dataclass(frozen=True)
class Listed:
    """A population whose pairs are all listed; each is as likely as any other."""

    pairs: Sequence[Pair]
    description: str

    def measure(self, bags: Bags) -> Ceiling:
        """Return the exact ceiling. Raises UsageError without pairs."""
        if not self.pairs:
            raise UsageError("the order-blind ceiling needs at least one pair")
        answers: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for bag, pair in zip(bags([pair.source for pair in self.pairs]).tolist(), self.pairs, strict=True):
            answers[bag][pair.target] += 1
        share = sum(max(targets.values()) for targets in answers.values()) / len(self.pairs)
        return Ceiling(share, share, share, self.description)


@dataclass(frozen=True)
class Drawn:
    """A population too large to be listed: items are drawn, each together with others that may have the same bag.

    ``draw`` returns an item, and equally likely items of the population, itself among them: a class of rearrangements
    that is the same whichever of its items is drawn, or a random sample of it. A model that also knew the class could
    do no worse than the bag alone allows, so what is computed is never too low on average.
    """

    draw: Callable[[random.Random], tuple[Pair, Sequence[Pair]]]
    noun: str
    count: int = DRAWS

    def measure(self, bags: Bags) -> Ceiling:
        """Return the mean over drawn items of the largest share that one answer has among the items of their bag."""
        rng = random.Random("order-blind ceiling")
        shares = np.zeros(self.count)
        for drawn in range(self.count):
            item, others = self.draw(rng)
            bag, *rest = bags([item.source, *(pair.source for pair in others)]).tolist()
            targets = Counter(pair.target for pair, same in zip(others, rest, strict=True) if same == bag)
            shares[drawn] = max(targets.values()) / targets.total()
        mean = float(shares.mean())
        reach = NORMAL * float(shares.std(ddof=1)) / math.sqrt(self.count)
        return Ceiling(mean, max(mean - reach, 0.0), min(mean + reach, 1.0), f"{self.count:,} {self.noun} drawn")


@dataclass(frozen=True)
class Composed:
    """A population of N texts with a different answer each, almost all of which are a head followed by a tail.

    The items are the texts ``alone``, which are not divided, and then every head with every tail: head h with tail t is
    item len(alone) + h·len(tails) + t. ``weights_N``: how likely each item is; items beyond N do not belong to it.
    ``whole`` returns the text of an item as the corpus has it: ``measure`` checks for a sample that its bag of tokens
    is that of head and tail together, and returns None if it is not.
    """

    alone: Sequence[str]
    heads: Sequence[str]
    tails: Sequence[str]
    weights_N: NDArray[np.float64]
    whole: Callable[[int], str]
    description: str

    def measure(self, bags: Bags) -> Ceiling | None:
        """Return the exact ceiling, or None where a token crosses from a head into its tail."""
        sums = bags(self.heads)[:, None] + bags(self.tails)[None, :]
        bags_N = np.concatenate([bags(self.alone), sums.ravel()])[: len(self.weights_N)]
        sample = random.Random(0).sample(range(len(bags_N)), min(DRAWS, len(bags_N)))
        if not np.array_equal(bags([self.whole(item) for item in sample]), bags_N[sample]):
            return None
        order = np.argsort(bags_N, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(bags_N[order]) != 0])
        share = float(np.maximum.reduceat(self.weights_N[order], starts).sum() / self.weights_N.sum())
        return Ceiling(share, share, share, self.description)


def permute(values: Sequence[str], rng: random.Random, most: int) -> Iterable[tuple[str, ...]]:
    """Yield ``values`` and at most ``most`` - 1 random rearrangements of them, which may repeat."""
    yield tuple(values)
    for _ in range(most - 1):
        yield tuple(rng.sample(values, len(values)))


def check_sentences(corpus: str, sizes: Mapping[str, int]) -> None:
    """Raise UsageError if the made sentences do not fit the memory; ``sizes``: how many each split has."""
    name = max(sizes, key=lambda split: sizes[split])
    what = f"corpus {corpus!r}: {name}={sizes[name]:,} sentences need"
    require_memory(BYTES_A_LINE * sum(sizes.values()), what, "ask for fewer")
