"""What the heads of one attention layer attend to: by place, by offset and by distance, summed over all texts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.inspection.estimators.position_sums import PositionSums
from clockhands.inspection.reading.attention_call import AttentionCall
from clockhands.shapes import Bool, Float, Tensor

REACH = 32
"""The largest offset, in tokens either way, by which attention is counted."""


@dataclass(frozen=True)
class HeadStatistics:
    """One layer's heads over all texts: places (with their 95 % interval), offsets and distances."""

    by_position_H: Float[Tensor, " H"]
    by_position_H2: Float[Tensor, "H two"]
    offsets_HJ: Float[Tensor, "H J"]
    first_token_H: Float[Tensor, " H"]
    distance_NH: Float[Tensor, "N H"]
    uniform_distance: float
    uniform_offsets_J: Float[Tensor, " J"]

    @property
    def distance_H(self) -> Tensor:
        """How far each head looks, the mean over the texts."""
        return self.distance_NH.mean(0)

    @property
    def favourite_offset_H(self) -> Tensor:
        """The offset that each head attends to most."""
        return self.offsets_HJ.argmax(-1) - REACH

    def offset(self, r: int) -> Tensor:
        """Mean attention of each head to the token ``r`` places further on (negative: before)."""
        return self.offsets_HJ[:, REACH + r]

    def name_head(self, head: int) -> str:
        """A name for what the head does, or an empty string."""
        best = int(self.favourite_offset_H[head])
        if float(self.offsets_HJ[head].max()) >= 0.5:
            return {-1: "previous token", 0: "itself", 1: "next token"}.get(best, f"offset {best:+d}")
        return "first token" if float(self.first_token_H[head]) >= 0.5 else ""


class HeadCounts:
    """What is summed over one layer's attention, batch by batch; memory grows with length² once, not with texts."""

    def __init__(self, ordinary_T: Bool[Tensor, " T"]) -> None:
        self.ordinary_T, self.places = ordinary_T, PositionSums()
        self.first = torch.zeros(())
        self.mask_ST = torch.ones(1, 1, dtype=torch.bool)
        self.reach: list[Tensor] = []

    def add(self, call: AttentionCall) -> None:
        """Count in one batch."""
        kept = self.ordinary_T
        weights = call.weights_BHST.cpu()
        inner = weights if bool(kept.all()) else weights[:, :, kept][..., kept]
        self.first = self.first + weights[:, :, kept, 0].sum((0, 2), dtype=torch.float64) / int(kept.sum())
        self.mask_ST = call.mask_BHST[0, 0].cpu()[kept][:, kept]
        inner = inner / inner.sum(-1, keepdim=True).clamp_min(1e-12)
        self.places.add((inner.double() - self._uniform()) * self.mask_ST)
        self.reach.append(self._reach(inner))

    def _uniform(self) -> Float[Tensor, "S T"]:
        """Uniform attention over the keys that each query may see."""
        return self.mask_ST / self.mask_ST.sum(-1, keepdim=True).clamp_min(1)

    def _reach(self, inner_BHST: Float[Tensor, "B H S T"]) -> Float[Tensor, "B H"]:
        """The mean distance at which each head looks, text by text."""
        places, chosen = torch.arange(inner_BHST.shape[-1]), _queries(self.mask_ST)
        distance_ST = (places - places[:, None]).abs()
        return (inner_BHST[:, :, chosen] * distance_ST[chosen]).sum(-1, dtype=torch.float64).mean(-1)

    def statistics(self) -> HeadStatistics:
        """Places, offsets and distances of every head."""
        allowed, texts, uniform_ST = self.mask_ST, self.places.texts, self._uniform()
        mean_HST = self.places.total_gHST.sum(0) / texts + uniform_ST
        by_place, by_position_H2, _ = self.places.estimate_shares()
        queries = _queries(allowed)
        distance_ST = (torch.arange(len(allowed)) - torch.arange(len(allowed))[:, None]).double()
        uniform = float((uniform_ST * distance_ST.abs()).sum(-1)[queries].mean())
        offsets = _offsets(mean_HST, distance_ST)
        chance = _offsets(uniform_ST[None], distance_ST)[0]
        reach = torch.cat(self.reach)
        return HeadStatistics(by_place, by_position_H2, offsets, self.first / texts, reach, uniform, chance)


def _queries(allowed: Tensor) -> slice:
    """Return the queries to count: the middle half where keys lie on both sides, all but the first four where not."""
    size = len(allowed)
    causal = not bool(allowed.triu(1).any())
    return slice(min(4, size - 1), size) if causal else slice(size // 4, max(size // 4 + 1, 3 * size // 4))


def _offsets(mean_HST: Tensor, distance_ST: Tensor) -> Tensor:
    """Mean attention at each offset from −REACH to +REACH, over the queries that have such a key."""
    columns = []
    for r in range(-REACH, REACH + 1):
        there = distance_ST == r
        columns.append(mean_HST[:, there].mean(-1) if bool(there.any()) else torch.zeros(len(mean_HST)).double())
    return torch.stack(columns, dim=-1)
