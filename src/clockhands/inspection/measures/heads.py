"""Which heads attend by place, and how far they look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import heatmap, listed, mark, percent, untrained_as
from clockhands.inspection.estimators.intervals import PlaceSums, interval
from clockhands.inspection.reading.attention_call import AttentionCall
from clockhands.shapes import Bool, Float, Tensor

POSITIONAL = "Which heads attend by place?"
DISTANCE = "How far do the heads look?"
METHOD = (
    "Attention is renormalised over ordinary tokens. 'By place' is the share of its variance (around uniform "
    "attention over the keys a query may see) that the pair (i, j) explains alone: the squares of the mean over "
    "texts, less what chance puts there (the residual mean square), over all squares; 0 for attention that has "
    "nothing to do with place, 1 for attention that is the same on every text. A head is named after an offset if"
    " on average half of its attention goes there, and counted as positional from a share of 0.6. Interval of the "
    "count: the heads whose own 95 % interval (jackknife over eight groups of texts) lies above that share, and "
    "those whose interval reaches it. Untrained: fresh weights."
)
DISTANCE_METHOD = (
    "The mean of |i−j| under a head's attention, over ordinary tokens; queries from the middle half of the "
    "window, so that both sides are open (all queries in causal models). Interval: texts resampled. Uniform "
    "attention: the same mean over all keys that a query may see."
)
REACH = 32
STRONG = 0.6
"""From this share on, a head attends mostly by place."""


@dataclass(frozen=True)
class HeadStatistics:
    """One layer's heads over all texts: places (with their 95 % interval), offsets and distances."""

    by_place_H: Float[Tensor, " H"]
    by_place_H2: Float[Tensor, "H two"]
    offsets_HR: Float[Tensor, "H R"]
    first_H: Float[Tensor, " H"]
    distance_NH: Float[Tensor, "N H"]
    uniform: float
    uniform_offsets_R: Float[Tensor, " R"]

    @property
    def distance_H(self) -> Tensor:
        """How far each head looks, the mean over the texts."""
        return self.distance_NH.mean(0)

    @property
    def fixed_H(self) -> Tensor:
        """The offset that each head attends to most."""
        return self.offsets_HR.argmax(-1) - REACH

    def offset(self, r: int) -> Tensor:
        """Mean attention of each head to the token ``r`` places further on (negative: before)."""
        return self.offsets_HR[:, REACH + r]

    def title(self, head: int) -> str:
        """A name for what the head does, or an empty string."""
        best = int(self.fixed_H[head])
        if float(self.offsets_HR[head].max()) >= 0.5:
            return {-1: "previous token", 0: "itself", 1: "next token"}.get(best, f"offset {best:+d}")
        return "first token" if float(self.first_H[head]) >= 0.5 else ""


class Counts:
    """What is summed over one layer's attention, batch by batch; memory grows with length² once, not with texts."""

    def __init__(self, ordinary_T: Bool[Tensor, " T"]) -> None:
        self.ordinary_T, self.places = ordinary_T, PlaceSums()
        self.first = torch.zeros(())
        self.allowed_ST = torch.ones(1, 1, dtype=torch.bool)
        self.reach: list[Tensor] = []

    def add(self, call: AttentionCall) -> None:
        """Count in one batch."""
        kept = self.ordinary_T
        weights = call.weights_BHST.cpu()
        inner = weights if bool(kept.all()) else weights[:, :, kept][..., kept]
        self.first = self.first + weights[:, :, kept, 0].sum((0, 2), dtype=torch.float64) / int(kept.sum())
        self.allowed_ST = call.allowed_BHST[0, 0].cpu()[kept][:, kept]
        inner = inner / inner.sum(-1, keepdim=True).clamp_min(1e-12)
        self.places.add((inner.double() - self._uniform()) * self.allowed_ST)
        self.reach.append(self._reach(inner))

    def _uniform(self) -> Float[Tensor, "S T"]:
        """Uniform attention over the keys that each query may see."""
        return self.allowed_ST / self.allowed_ST.sum(-1, keepdim=True).clamp_min(1)

    def _reach(self, inner_BHST: Float[Tensor, "B H S T"]) -> Float[Tensor, "B H"]:
        """The mean distance at which each head looks, text by text."""
        places, chosen = torch.arange(inner_BHST.shape[-1]), _queries(self.allowed_ST)
        distance_ST = (places - places[:, None]).abs()
        return (inner_BHST[:, :, chosen] * distance_ST[chosen]).sum(-1, dtype=torch.float64).mean(-1)

    def statistics(self) -> HeadStatistics:
        """Places, offsets and distances of every head."""
        allowed, texts, uniform_ST = self.allowed_ST, self.places.texts, self._uniform()
        mean_HST = self.places.total_GHST.sum(0) / texts + uniform_ST
        by_place, by_place_H2, _ = self.places.shares()
        queries = _queries(allowed)
        distance_ST = (torch.arange(len(allowed)) - torch.arange(len(allowed))[:, None]).double()
        uniform = float((uniform_ST * distance_ST.abs()).sum(-1)[queries].mean())
        offsets = _offsets(mean_HST, distance_ST)
        chance = _offsets(uniform_ST[None], distance_ST)[0]
        reach = torch.cat(self.reach)
        return HeadStatistics(by_place, by_place_H2, offsets, self.first / texts, reach, uniform, chance)


def _queries(allowed: Tensor) -> slice:
    """The middle half where keys lie on both sides; every query but the first few where they do not."""
    size = len(allowed)
    causal = not bool(allowed[0, -1])
    return slice(min(4, size - 1), size) if causal else slice(size // 4, max(size // 4 + 1, 3 * size // 4))


def _offsets(mean_HST: Tensor, distance_ST: Tensor) -> Tensor:
    """Mean attention at each offset from −REACH to +REACH, over the queries that have such a key."""
    columns = []
    for r in range(-REACH, REACH + 1):
        there = distance_ST == r
        columns.append(mean_HST[:, there].mean(-1) if bool(there.any()) else torch.zeros(len(mean_HST)).double())
    return torch.stack(columns, dim=-1)


def positional(found: Sequence[HeadStatistics], control: Sequence[HeadStatistics] | None = None) -> Finding:
    """How much of every head's attention the pair of places explains, and heads with a name."""
    grid = torch.stack([layer.by_place_H for layer in found])
    ends = torch.stack([layer.by_place_H2 for layer in found])
    strong, surely, perhaps = (int((values >= STRONG).sum()) for values in (grid, ends[..., 0], ends[..., 1]))
    fresh = int((torch.stack([layer.by_place_H for layer in control]) >= STRONG).sum()) if control else None
    named = [
        (index, head, layer.title(head), float(layer.offsets_HR[head].max()))
        for index, layer in enumerate(found)
        for head in range(len(layer.by_place_H))
        if layer.title(head)
    ]
    told = [f"layer {index + 1} head {head}: {title}" for index, head, title, _ in named]
    naming = (
        f" Named: {'; '.join(told[:6])}{f'; and {len(told) - 6} more' if len(told) > 6 else ''}."
        if told
        else " No head has a name."
    )
    untrained = f"; untrained {fresh}" if fresh is not None else ""
    return Finding(
        name="heads.positional",
        question=POSITIONAL,
        verdict=(
            f"{strong} of {grid.numel()} heads attend mostly by place (95 % interval {surely} to {perhaps}{untrained})."
            f"{naming}"
        ),
        value=float(strong),
        interval=(float(surely), float(perhaps)),
        unit="heads",
        references=untrained_as(fresh),
        light="good" if surely else "info",
        table=_table(found),
        figure=Figure(
            (
                Panel(
                    (heatmap(grid, x=tuple(range(grid.shape[1])), y=tuple(range(1, len(grid) + 1))),),
                    title="Share of attention variance explained by place",
                    xlabel="head",
                    ylabel="layer",
                ),
            )
        ),
        method=METHOD,
        source="unbiased two-way analysis of variance; named heads after Clark et al. 2019 and Voita et al. 2019",
        details={"named": told},
    )


def _table(found: Sequence[HeadStatistics]) -> Table:
    columns = (
        "layer", "head", "by place", "previous", "itself", "next", "first token", "favourite offset", "its share",
        "mean distance", "name",
    )  # fmt: skip
    rows = []
    for index, layer in enumerate(found):
        for head in range(len(layer.by_place_H)):
            masses = [layer.offset(r)[head] for r in (-1, 0, 1)]
            favourite = (layer.fixed_H[head], layer.offsets_HR[head].max(), layer.distance_H[head], layer.title(head))
            rows.append((index + 1, head, layer.by_place_H[head], *masses, layer.first_H[head], *favourite))
    return Table.of(columns, rows)


def distance(found: Sequence[HeadStatistics]) -> Finding:
    """How far the heads of every layer look, against uniform attention."""
    middles = [float(layer.distance_H.median()) for layer in found]
    nearest = min(range(len(middles)), key=middles.__getitem__)
    uniform = found[0].uniform
    return Finding(
        name="heads.distance",
        question=DISTANCE,
        verdict=(
            f"Layer {nearest + 1} looks nearest, at a median over heads of {middles[nearest]:.1f} tokens; uniform "
            f"attention "
            f"would look {uniform:.1f} tokens far. {_reaches(middles, uniform)}"
        ),
        value=middles[nearest],
        interval=_median_interval(found[nearest].distance_NH),
        unit="tokens",
        references=(Reference("uniform attention", uniform),),
        light="info",
        table=Table.of(
            ("layer", "head", "mean distance", "uniform"),
            [
                (index + 1, head, value, layer.uniform)
                for index, layer in enumerate(found)
                for head, value in enumerate(layer.distance_H)
            ],
        ),
        figure=_profiles(found),
        method=DISTANCE_METHOD,
        source="Clark et al. 2019; attention distance as in Dosovitskiy et al. 2021",
    )


def _median_interval(distance_NH: Float[Tensor, "N H"], draws: int = 400) -> tuple[float, float]:
    """Of the median over heads, when the texts are drawn again with replacement."""
    count = len(distance_NH)
    picks = torch.randint(count, (draws, count), generator=torch.Generator().manual_seed(0))
    return interval(distance_NH[picks].mean(1).median(-1).values)


def _reaches(middles: list[float], uniform: float) -> str:
    near = [str(index + 1) for index, middle in enumerate(middles) if middle < 0.5 * uniform]
    if not near:
        return "No layer looks less than half as far."
    return f"Less than half as far {'looks layer' if len(near) == 1 else 'look layers'} {listed(near)}."


def _profiles(found: Sequence[HeadStatistics]) -> Figure:
    """Attention by offset: the mean over heads of a few layers, and uniform attention."""
    step = max(1, -(-len(found) // 6))
    there = found[0].uniform_offsets_R > 0
    x = torch.arange(-REACH, REACH + 1)[there]
    panels = []
    for index in range(0, len(found), step):
        layer = found[index]
        best = int(layer.offsets_HR.max(-1).values.argmax())
        panels.append(
            Panel(
                (
                    mark("line", x, layer.offsets_HR.mean(0)[there], label="mean over heads", emphasis="main"),
                    mark("line", x, layer.offsets_HR[best][there], label="most local head"),
                    mark("line", x, layer.uniform_offsets_R[there], label="uniform", emphasis="null"),
                ),
                title=f"Layer {index + 1}, most local head {best} ({percent(float(layer.offsets_HR[best].max()))})",
                xlabel="key position − query position",
                ylabel="attention",
            )
        )
    return Figure(tuple(panels), columns=2)
