"""Which heads attend by position?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Finding, Table
from clockhands.inspection.drawing import draw_head_grid
from clockhands.inspection.measures.measure import LAYERS_HEADING, MASKED_WINDOWS, Measure, make_untrained_reference
from clockhands.inspection.reading.head_statistics import MAX_OFFSET
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.sinks import SAME_TOKEN

MOSTLY_EXPLAINED = 0.6
"""From this share on, a head is counted as attending mostly by position."""
MOST_NAMED = 6
"""Heads whose names a verdict lists."""


class HeadsByPosition(Measure):
    """How much of every head's attention the pair of positions explains, and which heads have a name."""

    name = "heads.positional"
    question = "Which heads attend by position?"
    references = ("untrained",)
    method = (
        "Attention is renormalised over ordinary tokens. 'By position' in the table is the share of its variance "
        "(around uniform attention over the keys a query may attend to) that the pair (i, j) of positions explains "
        "alone: the squares of the mean over texts, less what chance puts there (the residual mean square), over all "
        "squares; 0 for attention that does not depend on positions, 1 for attention that is the same on every text. A "
        f"head is named after an offset, one of at most {MAX_OFFSET} tokens that at least half of the queries have, if "
        "on average half of its attention goes there, else after one position of the window if half goes there "
        "(special tokens count, before attention is renormalised). Where the token at that position is the same in "
        f"{SAME_TOKEN:.0%} of the texts, it changes places with another one: a head follows the position if half of "
        "its attention or more stays there, and the token if half or more goes along, each beyond the 95 % interval of "
        "the difference over texts. A head that follows the token, or of which this is undecided, is not counted as "
        f"attending by position; others are from a share of {MOSTLY_EXPLAINED}. In place of an interval stand two "
        "counts: the heads whose own 95 % interval (jackknife over eight groups of texts) lies above that share, and "
        "the heads whose interval reaches it, undecided ones among them; there are no counts where no interval "
        "reaches it. Untrained: fresh weights."
    )
    source = (
        "unbiased one-way analysis of variance, by pair of positions; named heads after Clark et al. 2019 and Voita et "
        "al. 2019; sinks after Xiao et al. 2023"
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
            reading.count_by_position(shares, MOSTLY_EXPLAINED, undecided=undecided)
            for shares, undecided in (
                (shares_LH, False), (intervals_LH2[..., 0], False), (intervals_LH2[..., 1], True),
            )
        )  # fmt: skip
        untrained = None
        if control:
            untrained_LH = torch.stack([layer.by_position_H for layer in control.head_statistics])
            untrained = control.count_by_position(untrained_LH, MOSTLY_EXPLAINED)
        untrained_note = f"; untrained {untrained}" if untrained is not None else ""
        names = _name_heads(reading)
        return self.make_finding(
            f"{count} of {shares_LH.numel()} heads attend mostly by position ({surely} surely and {possibly} "
            f"possibly, by each head's own 95 % interval{untrained_note}).{_describe_names(names)}",
            float(count),
            interval=(float(surely), float(possibly)) if possibly else None,
            unit="heads",
            references=make_untrained_reference(untrained),
            light="good" if surely else "info",
            table=_make_table(reading),
            figure=draw_head_grid(shares_LH, "Share of attention variance explained by position"),
            details={"named": names},
        )


def _name_heads(reading: Reading) -> list[str]:
    """Return the heads that have a name: ``layer 1 head 1: previous token``."""
    names = []
    for index, layer in enumerate(reading.head_statistics):
        for head in range(len(layer.by_position_H)):
            sink = reading.sinks.get((index, head))
            name = sink.describe() if sink else layer.name_head(head)
            if name:
                names.append(f"layer {index + 1} head {head + 1}: {name}")
    return names


def _describe_names(names: Sequence[str]) -> str:
    """List the first names in a sentence."""
    if not names:
        offset = f"one offset (of at most {MAX_OFFSET} tokens)"
        return f" No head gives half of its attention to {offset} or to one position."
    more = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    listed = "; ".join(names[:MOST_NAMED])
    return f" Heads that give at least half of their attention to one offset, position or token: {listed}{more}."


def _make_table(reading: Reading) -> Table:
    """List every head: its share, its attention at single offsets and positions, and how far it attends."""
    columns = (
        "layer", "head", "by position", "previous", "itself", "next", "favourite offset", "its share",
        "favourite position", "its share of attention", "stays at the position", "goes with the token",
        "mean distance", "name",
    )  # fmt: skip
    rows = []
    for index, layer in enumerate(reading.head_statistics):
        for head in range(len(layer.by_position_H)):
            sink = reading.sinks.get((index, head))
            rows.append(
                (
                    index + 1, head + 1, layer.by_position_H[head],
                    *(layer.get_attention_at(r)[head] for r in (-1, 0, 1)), layer.favourite_offset_H[head],
                    layer.favourite_share_H[head], layer.place_H[head], layer.place_share_H[head],
                    sink.at_position if sink else None, sink.at_token if sink else None, layer.distance_H[head],
                    sink.describe() if sink else layer.name_head(head),
                )
            )  # fmt: skip
    return Table.of(columns, rows)
