"""Laws by which the scores of a simulated comparison come about, whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clockhands.shapes import Float

ITEMS = 300
"""Test items of a drawn comparison."""
LEVEL = 50.0
"""The score, in points, of every variant, except under a law that sets a ``share``."""
DEPTH = 15.0
"""By so many points a seed of the second kind scores less, under a law that has one. It is a seed that learned."""


@dataclass(frozen=True)
class Law:
    """How scores come about. Standard deviations in points: by seed, by item, by item of a variant, by chance.

    ``spread``: of the logarithm of a variant's own standard deviations. ``quiet``: by how much those of the baseline
    are multiplied. ``twins``: items in pairs of equal difficulty. ``along``: correlation of items that are neighbours.
    ``document``: items in documents of so many, all alike, of which the comparison is told nothing.
    ``freedom``: seeds and items of a variant vary as t with so many degrees of freedom does, not as a Gaussian.
    ``second``: share of the seeds that score ``DEPTH`` points less. ``share``: where it is set, items are right with
    this probability, and ``failing`` seeds get none of them right.
    """

    name: str
    seed: float = 2.0
    shared_item: float = 10.0
    item: float = 0.0
    chance: float = 10.0
    spread: float = 0.0
    quiet: float = 1.0
    twins: bool = False
    items: int = ITEMS
    along: float = 0.0
    document: int = 1
    freedom: float | None = None
    second: float = 0.0
    share: float | None = None
    failing: float = 0.0

    @property
    def truth(self) -> float:
        """The score over all seeds that learn and all items."""
        return LEVEL - DEPTH * self.second if self.share is None else 100 * self.share

    @property
    def groups(self) -> tuple[int, ...] | None:
        """The groups of the test items."""
        return tuple(place // 2 for place in range(self.items)) if self.twins else None

    def draw_worse(
        self, scale_V: Float[np.ndarray, " V"], seeds: int, rng: np.random.Generator, points: float
    ) -> Float[np.ndarray, "V S N"]:
        """Return scores as ``draw`` does, where the second variant is worse by so many points."""
        scores_VSN = self.draw(scale_V, seeds, rng)
        if self.share is None:
            scores_VSN[1] -= points
        else:
            scores_VSN[1] = replace(self, share=self.share - points / 100).draw(scale_V[:1], seeds, rng)[0]
        return scores_VSN

    def draw_scales(self, variants: int, rng: np.random.Generator) -> Float[np.ndarray, " V"]:
        """Return by how much the standard deviations of each variant, and of the baseline, differ from the law's."""
        scale_V = np.exp(rng.normal(0, self.spread, variants + 1))
        scale_V[0] *= self.quiet
        return scale_V

    def draw(
        self, scale_V: Float[np.ndarray, " V"], seeds: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "V S N"]:
        """Return the scores of equal variants of these scales, and of the baseline, which is the first."""
        shape = (len(scale_V), seeds, self.items)
        if self.share is not None:
            right_VS = self.share + rng.normal(0, self.seed / 100, shape[:2]) * (self.share < 0.99)
            right_VS = right_VS * (rng.random(shape[:2]) >= self.failing)
            return 100.0 * (rng.random(shape) < right_VS[:, :, None])
        repeat, count = (2, self.items // 2) if self.twins else (1, self.items)
        shared_N, item_VN = (self._draw_items((rows, count), rng) for rows in (1, len(scale_V)))
        seed_VS = rng.normal(0, self.seed, shape[:2])
        if self.freedom is not None:
            seed_VS = self.seed * rng.standard_t(self.freedom, shape[:2])
            item_VN = rng.standard_t(self.freedom, item_VN.shape)
        if self.second:
            seed_VS = seed_VS - DEPTH * (rng.random(shape[:2]) < self.second)
        own_VSN = seed_VS[:, :, None] + self.chance * self._draw_items(shape, rng)
        hard_VN = self.shared_item * shared_N + self.item * item_VN
        return LEVEL + np.repeat(hard_VN, repeat, axis=1)[:, None] + scale_V[:, None, None] * own_VSN

    def _draw_items(self, shape: tuple[int, ...], rng: np.random.Generator) -> Float[np.ndarray, "... N"]:
        """Return standard normal numbers, the last axis of them with the correlation ``along`` between neighbours."""
        documents = -(-shape[-1] // self.document)
        drawn = np.repeat(rng.normal(0, 1, (*shape[:-1], documents)), self.document, axis=-1)[..., : shape[-1]]
        for place in range(1, shape[-1] if self.along else 0):
            drawn[..., place] = self.along * drawn[..., place - 1] + (1 - self.along**2) ** 0.5 * drawn[..., place]
        return drawn


LAWS = (
    Law("seeds decide (Gaussian)"),
    Law("items decide", seed=0.2, item=15.0),
    Law("twins", seed=0.5, item=15.0, twins=True),
    Law("99.94 % right", share=0.9994),
    Law("a fifth of the seeds fails", share=0.9, failing=0.2),
    Law("unequal spreads", spread=0.7),
    Law("a quiet baseline", quiet=0.2),
    Law("neighbours alike", seed=1.0, shared_item=6.0, item=3.0, chance=3.0, items=28, along=0.2),
    Law("two kinds of seeds", second=0.2),
    Law("documents of 12", seed=1.0, item=6.0, chance=3.0, document=12),
    Law("neighbours at 0.7", seed=1.0, item=6.0, chance=3.0, along=0.7),
    Law("a hundred documents of 12", seed=1.0, item=6.0, chance=3.0, items=1200, document=12),
    Law("a seed in ten collapses", second=0.1),
    Law("heavy tails", seed=0.5, item=6.0, freedom=2.0),
)
