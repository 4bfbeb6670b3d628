"""Whether neighbouring test items hang together without being told, and blocks of them that count as one item.

Items of one document, or of one stretch of text, go well or badly together; counted one by one they make intervals too
narrow. Sums of neighbours then vary more than those of items in any other order: the variance ratio (Lo & MacKinlay
1988, "Stock Market Prices Do Not Follow Random Walks", Review of Financial Studies 1), for sums of 2, 4, 8, … items.
Its largest excess, in standard errors, is compared with that of the same items in random order, which is an exact test
whatever their distribution. Where it is too large, items are cut into blocks (Künsch 1989, Annals of Statistics 17)
twice as long as the longest sums that showed it about as well as any: shorter blocks would still hang together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from clockhands.comparison.statistics.variance import Matrix, group_items

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
