"""Find texts that repeat each other: near duplicates, and templates with the same tokens at the same positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from clockhands.shapes import Int, Tensor

NGRAM = 5
"""Tokens in an n-gram."""
LEAST_SHARED = 0.5
"""Two texts repeat each other if at least this share of the n-grams of one, the one with fewer, occurs in the other."""
DRAWS = 20
"""Permutations of the tokens of every text, for the range that chance gives."""


@dataclass(frozen=True)
class Repeats:
    """Groups of texts that repeat each other, and how much of the texts is fixed by the position.

    Texts with the same number in ``groups_N`` repeat each other. ``fixed`` is the share of tokens that are the same at
    one position of two texts, beyond those that are the same at any two positions: 0 in running text, 1 in one text
    many times. ``fixed_by_chance`` is its 95 % range when the tokens of every text are permuted.
    """

    groups_N: Int[Tensor, " N"]
    fixed: float
    fixed_by_chance: tuple[float, float]

    @property
    def share(self) -> float:
        """The share of the texts that repeat an earlier one."""
        return 1 - len(self.groups_N.unique()) / len(self.groups_N)

    @property
    def templated(self) -> bool:
        """Whether more tokens are fixed by their position than by chance, and more than one in a hundred."""
        return self.fixed > max(self.fixed_by_chance[1], 0.01)


def find_repeats(ids_NT: Int[Tensor, "N T"]) -> Repeats:
    """Find near duplicates and templates among texts of one length (of ordinary tokens only)."""
    generator = torch.Generator().manual_seed(0)
    orders = (torch.rand(ids_NT.shape, generator=generator).argsort(1) for _ in range(DRAWS))
    permuted = [measure_fixed_share(ids_NT.gather(1, order_NT)) for order_NT in orders]
    low, high = torch.quantile(torch.tensor(permuted), torch.tensor([0.025, 0.975])).tolist()
    return Repeats(group_repeats(ids_NT), measure_fixed_share(ids_NT), (low, high))


def group_repeats(ids_NT: Int[Tensor, "N T"]) -> Int[Tensor, " N"]:
    """Number the texts so that those which repeat each other, directly or through others, have that of the first."""
    ngrams_NGn = ids_NT.unfold(1, min(NGRAM, ids_NT.shape[1]), 1)
    texts, runs, _ = ngrams_NGn.shape
    number_n = ngrams_NGn.flatten(0, 1).unique(dim=0, return_inverse=True)[1]
    text_n = torch.arange(texts).repeat_interleave(runs)
    # A set of n-grams for each text, as a row of 0 and 1; products of two rows count what they share.
    pairs = torch.stack([text_n, number_n]).unique(dim=1).numpy()
    sets = csr_array((np.ones(pairs.shape[1], dtype=np.int64), pairs))
    shared, sizes = (sets @ sets.T).tocoo(), sets.sum(1)
    near = shared.data >= LEAST_SHARED * np.minimum(sizes[shared.row], sizes[shared.col])
    graph = coo_array((near[near], (shared.row[near], shared.col[near])), shape=(texts, texts))
    _, first, group_N = np.unique(
        connected_components(graph, directed=False)[1], return_index=True, return_inverse=True
    )
    return torch.from_numpy(first[group_N])


def measure_fixed_share(ids_NT: Int[Tensor, "N T"]) -> float:
    """Return the share of tokens fixed by the position: (p − q) / (1 − q).

    p is the probability that two texts have the same token at the same position, q that they have it at two different
    positions.
    """
    texts, length = ids_NT.shape
    codes_NT = ids_NT.unique(return_inverse=True)[1]
    table_TV = torch.zeros(length, int(codes_NT.max()) + 1, dtype=torch.float64)
    table_TV.scatter_add_(1, codes_NT.T.contiguous(), torch.ones(length, texts, dtype=torch.float64))
    same = float((table_TV * (table_TV - 1)).sum()) / (length * texts * max(texts - 1, 1))
    # Pairs of tokens of two texts at two positions are all pairs, less those at one position and those within one text.
    by_text_NV = torch.zeros(texts, table_TV.shape[1], dtype=torch.float64)
    by_text_NV.scatter_add_(1, codes_NT, torch.ones(texts, length, dtype=torch.float64))
    within, at_one_position = float(by_text_NV.square().sum()), float(table_TV.square().sum()) - texts * length
    pairs = texts * (texts - 1) * length * (length - 1)
    everything = float(table_TV.sum(0).square().sum())
    elsewhere = (everything - within - at_one_position) / pairs if pairs else 1.0
    return (same - elsewhere) / (1 - elsewhere) if elsewhere < 1 else 0.0
