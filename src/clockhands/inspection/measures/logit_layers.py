"""What decides where a layer looks: words, positions, or both?"""

from __future__ import annotations

from collections.abc import Sequence

from clockhands.findings import Finding, Table
from clockhands.inspection.drawing import percent, percent_range, reference_untrained
from clockhands.inspection.measures.logit_figure import METHOD, SOURCE, draw_shares
from clockhands.inspection.measures.measure import ATTENTION, WINDOWS, Measure
from clockhands.inspection.reading.logit_split import DATA, TERMS, Split
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.term_groups import (
    POSITIONAL,
    compute_group_interval,
    compute_positional_share,
    sum_groups,
)
from clockhands.shapes import Tensor

EXACT = 1e-4
"""The largest relative error of a split that counts as exact."""


LEAST = 1e-6
"""Data-dependent shares below this are rounding."""


class LogitLayers(Measure):
    """The split of every layer's logits, with the reconstruction error."""

    name = "logits.layers"
    question = "What decides where a layer looks?"
    references = ("untrained",)
    method = METHOD
    source = SOURCE
    group = ATTENTION
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        splits = reading.splits
        shares = [split.layer_shares() for split in splits]
        along = [compute_positional_share(share) for share in shares]
        fresh = (
            [compute_positional_share(split.layer_shares()) for split in reading.control.splits]
            if reading.control
            else None
        )
        error = max(split.error for split in splits)
        moved = sum(float(share[TERMS.index(DATA)]) for share in shares) / len(shares)
        untrained = f" (untrained {percent(fresh[0])} and {percent(fresh[-1])})" if fresh else ""
        return self.finding(
            f"{_first_layer(splits[0])} In the last layer it accounts for {percent(along[-1])}{untrained}. "
            f"{_exactness(error, moved)}",
            along[0],
            interval=compute_group_interval(splits[0], *POSITIONAL),
            references=reference_untrained(fresh[0] if fresh else None),
            light="warn" if error > EXACT else "info",
            table=_layer_table(shares, splits),
            figure=draw_shares([f"{index + 1}" for index in range(len(shares))], shares, "layer", fresh),
            details={"error": error, "positional": along, "positional_untrained": fresh},
        )


def _first_layer(split: Split) -> str:
    """Say how much position alone decides in the first layer, where its interval lies above zero."""
    share, (low, high) = split.layer_shares(), compute_group_interval(split, *POSITIONAL)
    value, content = percent(compute_positional_share(share)), percent(sum_groups(share)["content–content"])
    if not float(split.var_NH.sum()) > 0:
        return "The first layer looks at all tokens alike: the logits of a query are equal."
    if low <= 0:
        return (
            f"No effect of position alone on the first layer's logits was found ({value}, 95 % interval "
            f"{percent_range(low, high)}; content alone {content})."
        )
    return (
        f"Position alone accounts for {value} of the variance of the first layer's logits (95 % interval "
        f"{percent_range(low, high)}), "
        f"content alone {content}."
    )


def _exactness(error: float, moved: float) -> str:
    words = ""
    if abs(moved) > LEAST:
        words = f"Here the words move the places: {percent(moved)} of the logits are data-dependent. "
    if error <= EXACT:
        return f"{words}The terms rebuild the logits to {error:.0e}."
    return f"{words}But the terms miss the logits by up to {percent(error)} of the largest: take them as a rough guide."


def _layer_table(shares: Sequence[Tensor], splits: Sequence[Split]) -> Table:
    rows = [(index + 1, *share, split.error) for index, (share, split) in enumerate(zip(shares, splits, strict=True))]
    return Table.of(("layer", *TERMS, "reconstruction error"), rows)
