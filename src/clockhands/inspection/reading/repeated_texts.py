"""Texts that repeat each other: near duplicates, and templates that put the same tokens at the same places."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

import torch

from clockhands.shapes import Float, Int, Tensor

RUN = 5
"""Tokens in a run."""
SHARED = 0.5
"""From this part of its runs on that occur in another text, a text repeats that one."""
DRAWS = 20


@dataclass(frozen=True)
class Repeats:
    """Groups of texts that repeat each other, and how much of the texts is fixed by the place.

    ``fixed`` is the part of tokens that are the same at the same place in all texts, beyond those that are the same at
    any two places: 0 in running text, 1 in one text many times. ``fixed_by_chance`` is the 95 % range of it when the
    tokens of every text are permuted.
    """

    groups_N: Int[Tensor, " N"]
    fixed: float
    fixed_by_chance: tuple[float, float]

    @property
    def share(self) -> float:
        """The part of the texts that repeat an earlier one."""
        return 1 - len(self.groups_N.unique()) / len(self.groups_N)

    @property
    def templated(self) -> bool:
        """Whether more tokens are fixed by their place than chance fixes, and more than one in a hundred."""
        return self.fixed > max(self.fixed_by_chance[1], 0.01)


def repeats(ids_NT: Int[Tensor, "N T"]) -> Repeats:
    """Find near duplicates and templates among texts of one length (of ordinary tokens only)."""
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(DRAWS):
        order_NT = torch.rand(ids_NT.shape, generator=generator).argsort(1)
        drawn.append(fixed_by_place(ids_NT.gather(1, order_NT)))
    low, high = torch.quantile(torch.tensor(drawn), torch.tensor([0.025, 0.975])).tolist()
    return Repeats(groups(ids_NT), fixed_by_place(ids_NT), (low, high))


def groups(ids_NT: Int[Tensor, "N T"]) -> Int[Tensor, " N"]:
    """Number the texts so that those which repeat each other, directly or through others, have one number."""
    size = min(RUN, ids_NT.shape[1])
    runs = [{tuple(run) for run in ids_t.unfold(0, size, 1).tolist()} for ids_t in ids_NT]
    having: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for text, found in enumerate(runs):
        for run in found:
            having[run].append(text)
    shared: dict[tuple[int, int], int] = defaultdict(int)
    for texts in having.values():
        for pair in combinations(texts, 2):
            shared[pair] += 1
    leader = list(range(len(runs)))

    def root(text: int) -> int:
        while leader[text] != text:
            text = leader[text]
        return text

    for (first, second), count in shared.items():
        if count >= SHARED * min(len(runs[first]), len(runs[second])):
            low, high = sorted((root(first), root(second)))
            leader[high] = low
    return torch.tensor([root(text) for text in range(len(runs))])


def fixed_by_place(ids_NT: Int[Tensor, "N T"]) -> float:
    """The part of tokens fixed by the place: P(same token at one place of two texts), beyond P(at any places)."""
    texts, length = ids_NT.shape
    codes_NT = ids_NT.unique(return_inverse=True)[1]
    table_TV = torch.zeros(length, int(codes_NT.max()) + 1, dtype=torch.float64)
    table_TV.scatter_add_(1, codes_NT.T.contiguous(), torch.ones(length, texts, dtype=torch.float64))
    same = float((table_TV * (table_TV - 1)).sum()) / (length * texts * max(texts - 1, 1))
    # Pairs of two texts at two different places: all pairs, less those at one place and those within one text.
    elsewhere = _same_elsewhere(table_TV, codes_NT)
    return (same - elsewhere) / (1 - elsewhere) if elsewhere < 1 else 0.0


def _same_elsewhere(table_TV: Float[Tensor, "T V"], codes_NT: Int[Tensor, "N T"]) -> float:
    texts, length = codes_NT.shape
    own_NV = torch.zeros(texts, table_TV.shape[1], dtype=torch.float64)
    own_NV.scatter_add_(1, codes_NT, torch.ones(texts, length, dtype=torch.float64))
    everything = float(table_TV.sum(0).square().sum())
    within = float(own_NV.square().sum())
    at_one_place = float(table_TV.square().sum()) - texts * length
    pairs = texts * (texts - 1) * length * (length - 1)
    return (everything - within - at_one_place) / pairs if pairs else 1.0
