"""Which heads attend by place."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Finding, Table
from clockhands.inspection.drawing import draw_head_grid, reference_untrained
from clockhands.inspection.measures.measure import LAYERS, SIGHT, Measure
from clockhands.inspection.reading.head_statistics import HeadStatistics
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Tensor

STRONG = 0.6
"""From this share on, a head attends mostly by place."""
MOST_NAMED = 6
"""Heads whose names a verdict lists."""


class HeadsByPlace(Measure):
    """How much of every head's attention the pair of places explains, and heads with a name."""

    name = "heads.positional"
    question = "Which heads attend by place?"
    references = ("untrained",)
    method = (
        "Attention is renormalised over ordinary tokens. 'By place' is the share of its variance (around uniform "
        "attention over the keys a query may see) that the pair (i, j) explains alone: the squares of the mean over "
        "texts, less what chance puts there (the residual mean square), over all squares; 0 for attention that has "
        "nothing to do with place, 1 for attention that is the same on every text. A head is named after an offset if"
        " on average half of its attention goes there, and counted as positional from a share of 0.6. In the "
        "place of an interval: how many heads have an own 95 % interval (jackknife over eight groups of texts) that "
        "lies above that share, and how many one that reaches it. Untrained: fresh weights."
    )
    source = (
        "unbiased one-way analysis of variance, by pair of positions; named heads after Clark et al. 2019 and Voita et "
        "al. 2019"
    )
    group = LAYERS
    rests_on = SIGHT
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        found = reading.heads
        grid = torch.stack([layer.by_position_H for layer in found])
        ends = torch.stack([layer.by_position_H2 for layer in found])
        strong, surely, perhaps = (_count(values) for values in (grid, ends[..., 0], ends[..., 1]))
        control = reading.control
        fresh = _count(torch.stack([layer.by_position_H for layer in control.heads])) if control else None
        untrained = f"; untrained {fresh}" if fresh is not None else ""
        named = _names(found)
        return self.finding(
            f"{strong} of {grid.numel()} heads attend mostly by place ({surely} surely and {perhaps} "
            f"possibly, by each head's own 95 % interval{untrained}).{_naming(named)}",
            float(strong),
            interval=(float(surely), float(perhaps)),
            unit="heads",
            references=reference_untrained(fresh),
            light="good" if surely else "info",
            table=_table(found),
            figure=draw_head_grid(grid, "Share of attention variance explained by place"),
            details={"named": named},
        )


def _count(shares: Tensor) -> int:
    return int((shares >= STRONG).sum())


def _names(found: Sequence[HeadStatistics]) -> list[str]:
    """Return the heads that have a name: ``layer 1 head 0: previous token``."""
    return [
        f"layer {index + 1} head {head}: {layer.name_head(head)}"
        for index, layer in enumerate(found)
        for head in range(len(layer.by_position_H))
        if layer.name_head(head)
    ]


def _naming(named: Sequence[str]) -> str:
    if not named:
        return " No head has a name."
    more = f"; and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f" Named: {'; '.join(named[:MOST_NAMED])}{more}."


def _table(found: Sequence[HeadStatistics]) -> Table:
    columns = (
        "layer", "head", "by place", "previous", "itself", "next", "first token", "favourite offset", "its share",
        "mean distance", "name",
    )  # fmt: skip
    rows = []
    for index, layer in enumerate(found):
        for head in range(len(layer.by_position_H)):
            masses = [layer.offset(r)[head] for r in (-1, 0, 1)]
            favourite = (
                layer.favourite_offset_H[head],
                layer.offsets_HJ[head].max(),
                layer.distance_H[head],
                layer.name_head(head),
            )
            rows.append((index + 1, head, layer.by_position_H[head], *masses, layer.first_token_H[head], *favourite))
    return Table.of(columns, rows)
