"""Which heads have logits that depend on position? The split of the logits, head by head."""

from __future__ import annotations

from collections.abc import Sequence

from clockhands.findings import Finding, Table
from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.measures.logit_figure import SPLIT_METHOD, SPLIT_SOURCE, draw_shares
from clockhands.inspection.measures.measure import ATTENTION_HEADING, WINDOWS, Measure, make_untrained_reference
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.logit_parts import TERMS
from clockhands.inspection.reading.logit_split import LogitSplit
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.term_groups import POSITIONAL, TERM_GROUPS, compute_positional_share

MOSTLY = 0.5
"""From this share of position alone on, the logits of a head depend mostly on position."""


class LogitHeads(Measure):
    """The split of every head; drawn for the layer where the share of position alone is largest."""

    name = "logits.heads"
    question = "Which heads have logits that depend on position?"
    references = ("untrained",)
    method = SPLIT_METHOD + (
        " In place of an interval of the count stand two counts: the heads whose own interval lies above one half, and "
        "those whose interval reaches it; there are no counts where none does. Heads are numbered from 0, layers "
        "from 1."
    )
    source = SPLIT_SOURCE
    heading = ATTENTION_HEADING
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every head; the value is the number of heads in which position alone accounts for half or more."""
        splits = reading.logit_splits
        layer_shares = [compute_positional_share(split.compute_layer_shares()) for split in splits]
        layer = max(range(len(layer_shares)), key=layer_shares.__getitem__)
        term_shares = splits[layer].compute_head_shares()
        head_shares = [compute_positional_share(share) for share in term_shares]
        head = max(range(len(head_shares)), key=head_shares.__getitem__)
        count, surely, possibly, heads = count_positional_heads(splits)
        untrained = count_positional_heads(reading.control.logit_splits)[0] if reading.control else None
        untrained_note = f"; untrained {untrained}" if untrained is not None else ""
        parts_of_variance = (splits[layer].var_NH.sum(0) / splits[layer].var_NH.sum()).tolist()
        return self.make_finding(
            f"Position alone accounts for at least half of the logits' variance in {count} of {heads} heads "
            f"({surely} surely and {possibly} possibly, by each head's own 95 % interval{untrained_note}); in layer "
            f"{layer + 1} its share is largest in head {head} ({format_percent(head_shares[head])}).",
            float(count),
            interval=(float(surely), float(possibly)) if possibly else None,
            unit="heads",
            references=make_untrained_reference(untrained),
            light="info",
            table=Table.of(
                ("layer", "head", *TERMS),
                [
                    (index + 1, head, *row)
                    for index, split in enumerate(splits)
                    for head, row in enumerate(split.compute_head_shares())
                ],
            ),
            figure=draw_shares(
                [str(head) for head in range(len(term_shares))], term_shares, f"head of layer {layer + 1}", None
            ),
            details={"layer": layer + 1, "part_of_layer_variance": parts_of_variance},
        )


def count_positional_heads(splits: Sequence[LogitSplit]) -> tuple[int, int, int, int]:
    """Count the heads in which position alone accounts for at least half of the logits' variance.

    Returns:
        Their number; the number of heads whose own 95 % interval lies above one half; of those whose interval reaches
        it; of all heads.
    """
    shares = [compute_positional_share(row) for split in splits for row in split.compute_head_shares()]
    terms = [TERMS.index(term) for name in POSITIONAL for term in TERM_GROUPS[name]]
    intervals = [
        bootstrap_ratio(split.cov_NHt[:, head, terms].sum(-1), split.var_NH[:, head])
        for split in splits
        for head in range(split.var_NH.shape[1])
    ]
    lows, highs = zip(*intervals, strict=True)
    count, surely, possibly = (sum(value >= MOSTLY for value in values) for values in (shares, lows, highs))
    return count, surely, possibly, len(shares)
