"""Estimate the variance of a mean over seeds × test items, and which difference could have been detected by it.

Seeds and items are both samples, another seed and another sentence: two-way clustering (Cameron, Gelbach & Miller
2011). Items that hang together are one group, and count as one."""

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
Sizes = Float[np.ndarray, " G"]


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


def group_items(items_SN: Matrix, groups: Sequence[int] | None) -> tuple[Matrix, Sizes]:
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


def estimate_parts(gap_SG: Matrix, sizes_G: Sizes) -> tuple[float, VarianceParts]:
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


def count_effective_groups(sizes_G: Sizes) -> float:
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
