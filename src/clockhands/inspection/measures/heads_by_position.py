"""Which heads attend by position?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Finding, Table
from clockhands.inspection.drawing import draw_head_grid
from clockhands.inspection.measures.measure import LAYERS_HEADING, MASKED_WINDOWS, Measure, make_untrained_reference
from clockhands.inspection.reading.head_statistics import MAX_OFFSET, HeadStatistics
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Tensor

MOSTLY = 0.6
"""From this share on, a head is counted as attending mostly by position."""
MOST_NAMED = 6
"""Heads whose names a verdict lists."""


class HeadsByPosition(Measure):
    """How much of every head's attention the pair of positions explains, and which heads have a name."""

    name = "heads.positional"
    question = "Which heads attend by position?"
    references = ("untrained",)
    method = (
        "Attention is renormalised over ordinary tokens. 'By place' in the table is the share of its variance (around "
        "uniform attention over the keys a query may attend to) that the pair (i, j) of positions explains alone: the "
        "squares of the mean over texts, less what chance puts there (the residual mean square), over all squares; 0 "
        "for attention that does not depend on positions, 1 for attention that is the same on every text. A head is "
        f"named after an offset, one of at most {MAX_OFFSET} tokens that at least half of the queries have, if on "
        "average half of its attention goes there, else after the first token of the window if half goes there "
        f"(special or not, before attention is renormalised); it is counted as positional from a share of {MOSTLY}. In "
        "place of an interval stand two counts: the heads whose own 95 % interval (jackknife over eight groups of "
        "texts) lies above that share, and the heads whose interval reaches it; there are no counts where no interval "
        "reaches it. Untrained: fresh weights."
    )
    source = (
        "unbiased one-way analysis of variance, by pair of positions; named heads after Clark et al. 2019 and Voita et "
        "al. 2019"
    )
    heading = LAYERS_HEADING
    rests_on = MASKED_WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every head; the value is the number of heads that attend mostly by position."""
        layers, control = reading.head_statistics, reading.control
        shares_LH = torch.stack([layer.by_position_H for layer in layers])
        intervals_LH2 = torch.stack([layer.by_position_interval_H2 for layer in layers])
        count, surely, possibly = (
            _count_heads(shares) for shares in (shares_LH, intervals_LH2[..., 0], intervals_LH2[..., 1])
        )
        untrained = (
            _count_heads(torch.stack([layer.by_position_H for layer in control.head_statistics])) if control else None
        )
        untrained_note = f"; untrained {untrained}" if untrained is not None else ""
        names = _name_heads(layers)
        return self.make_finding(
            f"{count} of {shares_LH.numel()} heads attend mostly by position ({surely} surely and {possibly} "
            f"possibly, by each head's own 95 % interval{untrained_note}).{_describe_names(names)}",
            float(count),
            interval=(float(surely), float(possibly)) if possibly else None,
            unit="heads",
            references=make_untrained_reference(untrained),
            light="good" if surely else "info",
            table=_make_table(layers),
            figure=draw_head_grid(shares_LH, "Share of attention variance explained by position"),
            details={"named": names},
        )


def _count_heads(shares: Tensor) -> int:
    """Count the heads whose share is that of attention mostly by position."""
    return int((shares >= MOSTLY).sum())


def _name_heads(layers: Sequence[HeadStatistics]) -> list[str]:
    """Return the heads that have a name: ``layer 1 head 0: previous token``."""
    return [
        f"layer {index + 1} head {head}: {layer.name_head(head)}"
        for index, layer in enumerate(layers)
        for head in range(len(layer.by_position_H))
        if layer.name_head(head)
    ]


def _describe_names(names: Sequence[str]) -> str:
    """List the first names in a sentence."""
    if not names:
        offset = f"one offset (of at most {MAX_OFFSET} tokens)"
        return f" No head gives half of its attention to {offset} or to the first token."
    more = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    listed = "; ".join(names[:MOST_NAMED])
    return f" Heads that give at least half of their attention to one offset or to the first token: {listed}{more}."


def _make_table(layers: Sequence[HeadStatistics]) -> Table:
    """List every head: its share, its attention at single offsets, and how far it attends."""
    columns = (  # saved tables keep these names, in which a position is a place
        "layer", "head", "by place", "previous", "itself", "next", "first token", "favourite offset", "its share",
        "mean distance", "name",
    )  # fmt: skip
    rows = []
    for index, layer in enumerate(layers):
        for head in range(len(layer.by_position_H)):
            at_offsets = [layer.get_attention_at(r)[head] for r in (-1, 0, 1)]
            others = (
                layer.favourite_offset_H[head],
                layer.favourite_share_H[head],
                layer.distance_H[head],
                layer.name_head(head),
            )
            rows.append((index + 1, head, layer.by_position_H[head], *at_offsets, layer.first_token_H[head], *others))
    return Table.of(columns, rows)
