"""Is the difference real? Published methods, on seeds × test items.

Every variant is trained from the same seeds and judged on the same test items, so what is compared is the matrix of
paired differences: seed s, item n. Seeds and items are both samples (another seed, another sentence), and both are
resampled: the pigeonhole bootstrap (Owen 2007, "The pigeonhole bootstrap", Annals of Applied Statistics 1). With a
handful of seeds a percentile interval is too narrow (Hesterberg 2015, "What Teachers Should Know About the Bootstrap",
The American Statistician 69, section 4.3); this one is the bootstrap t interval with the bootstrap's standard error,
widened by √(n/(n-1)), on the seeds' degrees of freedom (sections 4.3 and 5.5 there). Several comparisons share the
error among them: simultaneous intervals at level 1 - α/m (Bonferroni; Dunn 1961), so that interval and verdict agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

from clockhands.errors import UsageError
from clockhands.shapes import Float

Matrix = Float[np.ndarray, "S N"]
MIN_SEEDS = 5
"""Fewer give no verdict: with four, a difference has to be 3.2 standard errors, so one bad seed decides."""
RESAMPLES = 4000
POWER = 0.8
ALPHA = 0.05


@dataclass(frozen=True)
class Difference:
    """A mean paired difference with its interval; ``detectable``: the smallest that has 80 % power to be found.

    ``p`` is of this comparison alone; ``comparisons`` is how many share the error of ``low`` and ``high``.
    """

    value: float
    low: float
    high: float
    error: float
    p: float
    detectable: float
    seeds: int
    items: int
    comparisons: int = 1

    @property
    def adjusted(self) -> float:
        """p for all comparisons together (Bonferroni): below α where the interval excludes 0, and nowhere else."""
        return min(1.0, self.p * self.comparisons)

    def within(self, reach: float) -> Difference:
        """Return the same with its interval cut at ±reach: two shares of 100 are never further than 100 apart."""
        return replace(self, low=max(self.low, -reach), high=min(self.high, reach))

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def difference(
    ours_SN: Matrix, theirs_SN: Float[np.ndarray, "R M"], comparisons: int = 1, alpha: float = ALPHA
) -> Difference:
    """Return the mean of ours - theirs, seed by seed and item by item.

    ``comparisons`` is m of the simultaneous level 1 - α/m. Raises UsageError for matrices that are not paired, and for
    one seed.
    """
    if ours_SN.shape != theirs_SN.shape:
        raise UsageError(f"{ours_SN.shape} and {theirs_SN.shape} seeds × items are not paired")
    seeds, items = ours_SN.shape
    if seeds < 2:
        raise UsageError(f"{seeds} seed has no spread; an interval needs two at least")
    gap_SN = ours_SN - theirs_SN
    value = float(gap_SN.mean())
    error, freedom = standard_error(gap_SN)
    reach = float(stats.t.ppf(1 - alpha / (2 * comparisons), freedom)) * error
    p = float(2 * stats.t.sf(abs(value) / error, freedom)) if error else float(value == 0)
    smallest = detectable(error, freedom, comparisons, alpha)
    return Difference(value, value - reach, value + reach, error, p, smallest, seeds, items, comparisons)


def standard_error(gap_SN: Matrix, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the bootstrap standard error of the mean over seeds × items, and its degrees of freedom.

    Resampling rows and columns counts what is chance in every single cell three times (Owen 2007, theorem 3). Two
    thirds of that are taken off again, which gives the variance of two-way clustering (Cameron, Gelbach & Miller
    2011), and no less than that of the seeds alone or the items alone. Freedom: Satterthwaite 1946.
    """
    seeds, items = gap_SN.shape
    if not np.ptp(gap_SN):
        return 0.0, float(seeds - 1)
    rows_RS, columns_RN = _draws(seeds, items, resamples)
    means_R = np.einsum("rn,rn->r", rows_RS @ gap_SN, columns_RN) / (seeds * items)
    by_seed = float(stats.sem(gap_SN.mean(axis=1))) ** 2
    by_item = float(stats.sem(gap_SN.mean(axis=0))) ** 2 if items > 1 else 0.0
    cell_SN = gap_SN - gap_SN.mean(axis=1, keepdims=True) - gap_SN.mean(axis=0) + gap_SN.mean()
    cells = (seeds - 1) * max(items - 1, 1)
    by_cell = float((cell_SN**2).sum()) / cells / (seeds * items)
    drawn = float(means_R.var(ddof=1)) * seeds / (seeds - 1) - 2 * by_cell
    variance = max(drawn, by_seed, by_item)
    spread = by_seed**2 / (seeds - 1) + by_item**2 / max(items - 1, 1) + by_cell**2 / cells
    return math.sqrt(variance), max(seeds - 1.0, (by_seed + by_item - by_cell) ** 2 / spread)


@lru_cache(maxsize=4)
def _draws(seeds: int, items: int, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each seed and each item is drawn: the same resamples for every comparison of these sizes."""
    rng = np.random.default_rng(20_071)
    rows_RS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), resamples).astype(np.float64)
    return rows_RS, rng.multinomial(items, np.full(items, 1 / items), resamples).astype(np.float64)


def detectable(
    error: float, freedom: float | int, comparisons: int = 1, alpha: float = ALPHA, power: float = POWER
) -> float:
    """Return the difference that a t test of this standard error detects with that power (noncentral t; Cohen 1988)."""
    if not error:
        return 0.0
    threshold = stats.t.ppf(1 - alpha / (2 * comparisons), freedom)

    def short(shift: float) -> float:
        return float(stats.nct.sf(threshold, freedom, shift)) - power

    return float(optimize.brentq(short, 0.0, 8 * threshold + 8)) * error


def interquartile_mean(scores_S: Float[np.ndarray, " S"]) -> float:
    """Return the mean of the middle half of the seeds (Agarwal et al. 2021)."""
    return float(stats.trim_mean(scores_S, 0.25))


def probability_of_improvement(ours_S: Float[np.ndarray, " S"], theirs_R: Float[np.ndarray, " R"]) -> float:
    """Return P(a seed of ours beats a seed of theirs), ties counting half (Agarwal et al. 2021; Mann-Whitney U)."""
    wins = stats.mannwhitneyu(ours_S, theirs_R, alternative="two-sided").statistic
    return float(wins) / (len(ours_S) * len(theirs_R))


def mean_interval(scores_SN: Matrix, alpha: float = ALPHA) -> tuple[float, float]:
    """Return the interval of a mean over seeds and items, as for a difference."""
    mean = difference(scores_SN, np.zeros_like(scores_SN), 1, alpha)
    return mean.low, mean.high
