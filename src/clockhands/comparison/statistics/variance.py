"""Estimate the variance of a mean over seeds × test items, and which difference could have been detected by it.

Seeds and items are both samples, another seed and another sentence: two-way clustering (Cameron, Gelbach & Miller
2011). Items that hang together are one group, and count as one. Items of one document, or of one stretch of text, hang
together without being told: blocks of neighbours then count as one (``find_block_length``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

from clockhands.comparison.statistics.exact import ALPHA
from clockhands.errors import UsageError
from clockhands.shapes import Float

Matrix = Float[np.ndarray, "S N"]
GroupSizes = Float[np.ndarray, " G"]


@dataclass(frozen=True)
class VarianceParts:
    """Variances of a mean over seeds × groups: as estimated over seeds, over groups, and of the rest by cell."""

    seed: float
    item: float
    cell: float
    seeds: int
    groups: int

    @property
    def excess(self) -> float:
        """The variance that groups add to that over seeds, which holds the chance of every cell already."""
        return max(self.item - self.cell, self.item - self.seed, 0.0)

    @property
    def total(self) -> float:
        """The variance of the mean: two-way clustering, and no less than that of the seeds or the groups alone."""
        return self.seed + self.excess

    @property
    def freedom(self) -> float:
        """Degrees of freedom (Satterthwaite 1946)."""
        free_seed, free_item = self.seeds - 1, max(self.groups - 1, 1)
        # Satterthwaite: (Σ v)² / Σ v²/f of the variances v, each with f degrees of freedom of its own.
        spread = self.seed**2 / free_seed + self.item**2 / free_item + self.cell**2 / (free_seed * free_item)
        own = max(self.seed + self.item - self.cell, 0.0) ** 2 / spread if spread else 0.0
        return max(float(free_seed), own)


def group_items(items_SN: Matrix, groups: Sequence[int] | None) -> tuple[Matrix, GroupSizes]:
    """Return the mean over each group of items, S × G, and the groups' sizes; without groups each item is one.

    Raises UsageError where there are not as many group numbers as items.
    """
    if groups is None:
        return items_SN, np.ones(items_SN.shape[1])
    if len(groups) != items_SN.shape[1]:
        raise UsageError(f"{len(groups)} group numbers were given for {items_SN.shape[1]} test items")
    _, place_N, sizes_G = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    order_N = np.argsort(place_N, kind="stable")
    # Groups one after the other: each is summed from where it starts.
    starts_G = np.concatenate([[0], np.cumsum(sizes_G)[:-1]])
    sums_SG = np.add.reduceat(items_SN[:, order_N], starts_G, axis=1)
    return sums_SG / sizes_G, sizes_G.astype(np.float64)


def estimate_parts(gap_SG: Matrix, sizes_G: GroupSizes) -> tuple[float, VarianceParts]:
    """Return the mean over items, and what its variance is made of.

    Where groups differ in size the mean is a ratio; it is linearised (Cochran 1977, section 6.3), so that a large group
    weighs as many times more as it has items.
    """
    seeds, groups = gap_SG.shape
    value = float((gap_SG @ sizes_G).sum() / (seeds * sizes_G.sum()))
    # A large group counts as many times more as it has items; the mean of all stays the value.
    linear_SG = value + (gap_SG - value) * (sizes_G / sizes_G.mean())
    rows_S, columns_G = linear_SG.mean(axis=1), linear_SG.mean(axis=0)
    by_seed = float(rows_S.var(ddof=1)) / seeds
    by_item = float(columns_G.var(ddof=1)) / groups if groups > 1 else 0.0
    # What neither its seed nor its group says of a cell: cell - row - column + mean.
    rest_SG = linear_SG - rows_S[:, None] - columns_G + value
    cells = (seeds - 1) * max(groups - 1, 1)
    return value, VarianceParts(by_seed, by_item, float((rest_SG**2).sum()) / cells / (seeds * groups), seeds, groups)


def count_effective_groups(sizes_G: GroupSizes) -> float:
    """Return how many groups of equal size tell as much as these (Kish 1965)."""
    return float(sizes_G.sum() ** 2 / (sizes_G**2).sum())


POWER = 0.8
"""With which probability a difference is to be found that is said to have been detectable."""


def centre_error(error: float, freedom: float) -> float:
    """Return a standard error that is as often too large as too small: of four degrees of freedom it is low by 8 %."""
    return error * math.sqrt(freedom / float(stats.chi2.median(freedom)))


def find_detectable(
    error: float, freedom: float | int, comparisons: int = 1, alpha: float = ALPHA, power: float = POWER
) -> float:
    """Return the difference that a t test of this standard error detects with that power (noncentral t; Cohen 1988)."""
    return _find_detectable_t(float(freedom), comparisons, alpha, power) * error if error else 0.0


@lru_cache(maxsize=4096)
def _find_detectable_t(freedom: float, comparisons: int, alpha: float, power: float) -> float:
    """Return that difference in standard errors: a root of a slow function, which the parts of a page ask for again."""
    # Found where |t| exceeds this; t of a true difference of so many standard errors is noncentral by them.
    threshold = stats.t.ppf(1 - alpha / (2 * comparisons), freedom)

    def short(shift: float) -> float:
        return float(stats.nct.sf(threshold, freedom, shift)) - power

    return float(optimize.brentq(short, 0.0, 8 * threshold + 8))


LEVEL = 0.005
"""The error of the test: of comparisons with independent items, so many are told that neighbours hang together."""
ORDERS = 399
"""Random orders of the items with which their own order is compared."""
NEAR = 0.8
"""Sums show that neighbours hang together about as well as any where their excess is this part of the largest."""
FEWEST_BLOCKS = 5
"""Blocks at least: fewer would have no variance to speak of."""


def find_block_length(scores: Sequence[Matrix], groups: Sequence[int] | None = None) -> int:
    """Return how many neighbouring items (or groups of items) are to count as one; 1 where none hang together.

    Sums of neighbours then vary more than those of items in any other order: the variance ratio (Lo & MacKinlay 1988,
    "Stock Market Prices Do Not Follow Random Walks", Review of Financial Studies 1), for sums of 2, 4, 8, … items. Its
    largest excess, in standard errors, is compared with that of the same items in random order, an exact test whatever
    their distribution. Where it is too large, items are cut into blocks (Künsch 1989, Annals of Statistics 17) twice as
    long as the longest sums that showed it about as well as any: shorter blocks would still hang together.

    ``scores``: of each variant, seeds × items: its scores, or its differences from the baseline. They are averaged
    over seeds, whose own variance holds all that the items of a seed have in common. All variants are tested together,
    since they have the same items; 1 also where they have not, which is refused elsewhere.
    """
    rows = []
    for scores_SN in scores:
        means_SG, sizes_G = group_items(scores_SN, groups)
        means_G = means_SG.mean(axis=0)
        # Weighted by its size, a group adds to a sum what all of its items add.
        centred_G = (means_G - np.average(means_G, weights=sizes_G)) * sizes_G
        if spread := float(centred_G.std()):
            rows.append(centred_G / spread)
    alike = len({len(row) for row in rows}) == 1
    return _find_block_length(np.stack(rows).tobytes(), len(rows)) if alike else 1


# Table, sentences and figure of a page ask for the same verdicts.
@lru_cache(maxsize=16)
def _find_block_length(written: bytes, rows: int) -> int:
    """Return the length of a block from the numbers of M variants × G groups, each row of variance 1."""
    scores_MG = np.frombuffer(written).reshape(rows, -1)
    count = scores_MG.shape[1]
    lengths = [2**power for power in range(1, count.bit_length()) if 2**power * FEWEST_BLOCKS <= count]
    if not lengths:
        return 1
    found_L = _measure_excess(scores_MG, lengths)
    rng, beyond = np.random.default_rng(1988), 0
    for _ in range(ORDERS):
        beyond += _measure_excess(scores_MG[:, rng.permutation(count)], lengths).max() >= found_L.max()
        # No order that is still to be drawn can bring the p below the level again.
        if (1 + beyond) / (1 + ORDERS) > LEVEL:
            return 1
    clearest = [length for length, excess in zip(lengths, found_L, strict=True) if excess >= NEAR * found_L.max()]
    return min(2 * clearest[-1], count // FEWEST_BLOCKS)


def _measure_excess(scores_MG: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Return by how many standard errors the variance of sums of neighbours is too large, for each length of a sum."""
    count = scores_MG.shape[1]
    sums_MG = np.cumsum(np.pad(scores_MG, ((0, 0), (1, 0))), axis=1)
    # A sum of q independent items has q times the variance of one: their ratio is 1.
    ratio_L = np.array([((sums_MG[:, q:] - sums_MG[:, :-q]) ** 2).mean() / q for q in lengths])
    q_L = np.array(lengths)
    # Its variance under independence, for sums that overlap (Lo & MacKinlay 1988).
    return (ratio_L - 1) / np.sqrt(2 * (2 * q_L - 1) * (q_L - 1) / (3 * q_L * count))


def join_neighbours(items: int, groups: Sequence[int] | None, length: int) -> Sequence[int] | None:
    """Return the groups of test items where each ``length`` neighbouring items, or groups of them, count as one."""
    if length == 1:
        return groups
    place_N = np.unique(np.arange(items) if groups is None else np.asarray(groups), return_inverse=True)[1]
    count = int(place_N.max()) + 1
    # Blocks of as equal a length as can be, none shorter than asked for.
    return tuple((place_N * (count // length) // count).tolist())
