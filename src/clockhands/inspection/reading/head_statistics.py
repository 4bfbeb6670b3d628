"""What the heads of one attention layer attend to, by position, by offset and by distance, summed over all texts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.inspection.estimators.position_sums import PositionSums
from clockhands.inspection.reading.computed_attention import ComputedAttention
from clockhands.shapes import Bool, Float, Tensor

MAX_OFFSET = 32
"""The largest offset, in tokens before and after the query, at which attention is counted."""
MOSTLY = 0.5
"""The part of its attention from which on a head is said to look at one offset or one position."""


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics of the heads of one layer over all texts.

    ``by_position_H``: share of the variance of attention, around uniform attention, that the pair of positions
    explains alone; ``by_position_interval_H2``: its 95 % interval. ``attention_by_offset_HJ``: mean attention at each
    offset from -MAX_OFFSET to MAX_OFFSET (key less query), over all pairs of tokens at that offset, with zero for those
    that the mask forbids; ``frequent_J``: whether at least half of the queries may attend to a key there.
    ``place_shares_HT``: mean attention to each position of the window, special or not. ``distance_NH``: mean distance
    of what a head attends to, text by text, in tokens, over the middle half of the queries, or over all but the first
    four where the mask is causal. ``uniform_distance`` and ``uniform_by_offset_J``: mean distance and attention by
    offset of uniform attention under the layer's mask. All but ``place_shares_HT`` are of attention renormalised over
    ordinary tokens.
    """

    by_position_H: Float[Tensor, " H"]
    by_position_interval_H2: Float[Tensor, "H two"]
    attention_by_offset_HJ: Float[Tensor, "H J"]
    place_shares_HT: Float[Tensor, "H T"]
    distance_NH: Float[Tensor, "N H"]
    uniform_distance: float
    uniform_by_offset_J: Float[Tensor, " J"]
    frequent_J: Bool[Tensor, " J"]

    @property
    def distance_H(self) -> Tensor:
        """The mean distance, in tokens, at which each head attends."""
        return self.distance_NH.mean(0)

    @property
    def first_token_H(self) -> Tensor:
        """The mean attention of each head to the first token of the window."""
        return self.place_shares_HT[:, 0]

    @property
    def place_H(self) -> Tensor:
        """The position of the window that gets most of the attention of each head."""
        return self.place_shares_HT.argmax(-1)

    @property
    def place_share_H(self) -> Tensor:
        """The mean attention of each head to the position that gets most."""
        return self.place_shares_HT.amax(-1)

    @property
    def favourite_offset_H(self) -> Tensor:
        """The offset that each head attends to most, of those that at least half of the queries have."""
        return self._frequent_attention_HJ.argmax(-1) - MAX_OFFSET

    @property
    def favourite_share_H(self) -> Tensor:
        """The mean attention of each head at its favourite offset."""
        return self._frequent_attention_HJ.amax(-1)

    @property
    def _frequent_attention_HJ(self) -> Tensor:
        """Mean attention by offset, zero at offsets that few queries have: one pair of tokens would decide there."""
        return self.attention_by_offset_HJ.masked_fill(~self.frequent_J, 0.0)

    def get_attention_at(self, offset: int) -> Tensor:
        """Return each head's mean attention to the token ``offset`` positions after the query (negative: before)."""
        return self.attention_by_offset_HJ[:, MAX_OFFSET + offset]

    def name_head(self, head: int) -> str:
        """Return what gets at least half of the attention, an offset or one position; empty if neither does."""
        best = int(self.favourite_offset_H[head])
        if float(self.favourite_share_H[head]) >= MOSTLY:
            return {-1: "previous token", 0: "itself", 1: "next token"}.get(best, f"offset {best:+d}")
        place = int(self.place_H[head])
        name = f"position {place}" if place else "first position"
        return name if float(self.place_share_H[head]) >= MOSTLY else ""


class HeadSums:
    """Sums over the attention of one layer, taken batch by batch.

    They are length² numbers for each head and group of texts, and one number for each text and head.
    """

    def __init__(self, ordinary_T: Bool[Tensor, " T"]) -> None:
        self.ordinary_T, self.sums = ordinary_T, PositionSums()
        self.place_sums_HT = torch.zeros(())
        self.mask_ST = torch.ones(1, 1, dtype=torch.bool)
        self.distances: list[Tensor] = []

    def add(self, computed: ComputedAttention) -> None:
        """Add the attention of one batch."""
        ordinary = self.ordinary_T
        weights = computed.weights_BHST.cpu()
        ordinary_weights = weights if bool(ordinary.all()) else weights[:, :, ordinary][..., ordinary]
        places_HT = weights[:, :, ordinary].sum((0, 2), dtype=torch.float64) / int(ordinary.sum())
        self.place_sums_HT = self.place_sums_HT + places_HT
        # Assumed to be the mask of every text and head: windows have one length and no padding.
        self.mask_ST = computed.mask_BHST[0, 0].cpu()[ordinary][:, ordinary]
        # What goes to special tokens is left out, so that attention between ordinary tokens sums to 1 again.
        ordinary_weights = ordinary_weights / ordinary_weights.sum(-1, keepdim=True).clamp_min(1e-12)
        self.sums.add((ordinary_weights.double() - self._make_uniform()) * self.mask_ST)
        self.distances.append(self._measure_distance(ordinary_weights))

    def _make_uniform(self) -> Float[Tensor, "S T"]:
        """Return uniform attention over the keys that each query may attend to."""
        return self.mask_ST / self.mask_ST.sum(-1, keepdim=True).clamp_min(1)

    def _measure_distance(self, weights_BHST: Float[Tensor, "B H S T"]) -> Float[Tensor, "B H"]:
        """Return the mean distance at which each head attends, text by text."""
        positions, chosen = torch.arange(weights_BHST.shape[-1]), _choose_queries(self.mask_ST)
        distance_ST = (positions - positions[:, None]).abs()
        return (weights_BHST[:, :, chosen] * distance_ST[chosen]).sum(-1, dtype=torch.float64).mean(-1)

    def summarise(self) -> HeadStatistics:
        """Return the statistics of every head."""
        num_texts, uniform_ST = self.sums.num_texts, self._make_uniform()
        mean_HST = self.sums.total_gHST.sum(0) / num_texts + uniform_ST
        by_position, by_position_interval_H2, _ = self.sums.estimate_shares()
        queries, positions = _choose_queries(self.mask_ST), torch.arange(len(self.mask_ST))
        offset_ST = (positions - positions[:, None]).double()
        return HeadStatistics(
            by_position_H=by_position,
            by_position_interval_H2=by_position_interval_H2,
            attention_by_offset_HJ=_average_offsets(mean_HST, offset_ST),
            place_shares_HT=self.place_sums_HT / num_texts,
            distance_NH=torch.cat(self.distances),
            uniform_distance=float((uniform_ST * offset_ST.abs()).sum(-1)[queries].mean()),
            uniform_by_offset_J=_average_offsets(uniform_ST[None], offset_ST)[0],
            frequent_J=_find_frequent_offsets(self.mask_ST),
        )


def _choose_queries(mask_ST: Bool[Tensor, "S T"]) -> slice:
    """Return the queries to count: the middle half where keys lie on both sides, all but the first four where not.

    Queries near the ends have keys on one side only, and the first ones under a causal mask have hardly any choice.
    """
    size = len(mask_ST)
    causal = not bool(mask_ST.triu(1).any())
    return slice(min(4, size - 1), size) if causal else slice(size // 4, max(size // 4 + 1, 3 * size // 4))


def _find_frequent_offsets(mask_ST: Bool[Tensor, "S T"]) -> Bool[Tensor, " J"]:
    """Tell which offsets from -MAX_OFFSET to MAX_OFFSET at least half of the queries have, under this mask."""
    size = len(mask_ST)
    counts = [
        int(torch.diagonal(mask_ST, offset).sum()) if abs(offset) < size else 0
        for offset in range(-MAX_OFFSET, MAX_OFFSET + 1)
    ]
    return torch.tensor(counts) >= size / 2


def _average_offsets(mean_HST: Tensor, offset_ST: Tensor) -> Tensor:
    """Return mean attention at each offset from -MAX_OFFSET to MAX_OFFSET, over all pairs of tokens at that offset.

    A pair that the mask forbids counts as well, with an attention of zero.
    """
    columns = []
    for offset in range(-MAX_OFFSET, MAX_OFFSET + 1):
        pairs_ST = offset_ST == offset
        columns.append(mean_HST[:, pairs_ST].mean(-1) if bool(pairs_ST.any()) else torch.zeros(len(mean_HST)).double())
    return torch.stack(columns, dim=-1)
