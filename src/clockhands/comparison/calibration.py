"""A study of the comparison itself: how often it sees a difference where there is none, and where there is one.

Scores are simulated as seed + item + both + noise: a variant's seeds are good or bad on all items, its items are hard
or easy for all seeds, and the rest is chance. Two variants share the difficulty of the items, as in a real comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from clockhands.comparison.statistics import ALPHA, Matrix, detectable, difference


@dataclass(frozen=True)
class Law:
    """Standard deviations of what makes two variants differ: by seed, by item, by chance; and sizes."""

    name: str
    seed: float
    item: float
    noise: float
    seeds: int = 5
    items: int = 300

    @property
    def error(self) -> float:
        """The true standard error of a mean difference."""
        return float(
            np.sqrt(self.seed**2 / self.seeds + self.item**2 / self.items + self.noise**2 / (self.seeds * self.items))
        )


LAWS = (
    Law("seeds decide", seed=2.0, item=1.0, noise=10.0),
    Law("chance decides", seed=1.0, item=3.0, noise=15.0),
    Law("items decide", seed=0.2, item=15.0, noise=10.0),
    Law("ten seeds", seed=2.0, item=3.0, noise=10.0, seeds=10),
)


@dataclass(frozen=True)
class Rate:
    """How often a difference was shown, with the exact binomial interval (Clopper & Pearson 1934)."""

    shown: int
    drawn: int

    @property
    def value(self) -> float:
        return self.shown / self.drawn

    @property
    def interval(self) -> tuple[float, float]:
        interval = stats.binomtest(self.shown, self.drawn).proportion_ci(0.95, "exact")
        return float(interval.low), float(interval.high)


def shown(law: Law, planted: float = 0.0, comparisons: int = 1, drawn: int = 1000, seed: int = 0) -> Rate:
    """In how many of ``drawn`` comparisons a difference is shown, when ``planted`` is the truth.

    With several ``comparisons``, one shown among them counts: the error that they share.
    """
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(drawn):
        zeros = np.zeros((law.seeds, law.items))
        hits += any(
            difference(planted + _gap(law, rng), zeros, comparisons, ALPHA).significant for _ in range(comparisons)
        )
    return Rate(hits, drawn)


def promised(law: Law, comparisons: int = 1) -> float:
    """The difference that is promised to be seen with 80 % power, at the true standard error."""
    return detectable(law.error, law.seeds - 1, comparisons)


def _gap(law: Law, rng: np.random.Generator) -> Matrix:
    by_seed_S1 = rng.normal(0, law.seed, (law.seeds, 1))
    by_item_1N = rng.normal(0, law.item, (1, law.items))
    return by_seed_S1 + by_item_1N + rng.normal(0, law.noise, (law.seeds, law.items))
