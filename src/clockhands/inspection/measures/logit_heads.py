"""Which heads listen to position, by the split of their logits."""

from __future__ import annotations

from collections.abc import Sequence

from clockhands.findings import Finding, Table
from clockhands.inspection.drawing import percent, reference_untrained
from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.measures.logit_figure import METHOD, SOURCE, draw_shares
from clockhands.inspection.measures.measure import ATTENTION, WINDOWS, Measure
from clockhands.inspection.reading.logit_split import TERMS, Split
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.term_groups import GROUPS, POSITIONAL, compute_positional_share


class LogitHeads(Measure):
    """The split of every head of the layer where position alone decides most, and of all others in the table."""

    name = "logits.heads"
    question = "Which heads listen to position?"
    references = ("untrained",)
    method = METHOD + (
        " In the place of an interval of the count: the heads whose own interval lies above one half, and those whose "
        "interval reaches it. Heads are numbered from 0, layers from 1."
    )
    source = SOURCE
    group = ATTENTION
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        splits = reading.splits
        along = [compute_positional_share(split.layer_shares()) for split in splits]
        chosen = max(range(len(along)), key=along.__getitem__)
        shares = splits[chosen].head_shares()
        by_head = [compute_positional_share(share) for share in shares]
        best = max(range(len(by_head)), key=by_head.__getitem__)
        strong, surely, perhaps, every = _listeners(splits)
        fresh = _listeners(reading.control.splits)[0] if reading.control else None
        untrained = f"; untrained {fresh}" if fresh is not None else ""
        spread = (splits[chosen].var_NH.sum(0) / splits[chosen].var_NH.sum()).tolist()
        return self.finding(
            f"Position alone accounts for at least half of the logits' variance in {strong} of {every} heads "
            f"({surely} surely and {perhaps} possibly, by each head's own 95 % interval{untrained}); of layer "
            f"{chosen + 1} it decides most in head {best} ({percent(by_head[best])}).",
            float(strong),
            interval=(float(surely), float(perhaps)),
            unit="heads",
            references=reference_untrained(fresh),
            light="info",
            table=Table.of(
                ("layer", "head", *TERMS),
                [
                    (at + 1, head, *row)
                    for at, split in enumerate(splits)
                    for head, row in enumerate(split.head_shares())
                ],
            ),
            figure=draw_shares([str(head) for head in range(len(shares))], shares, f"head of layer {chosen + 1}", None),
            details={"layer": chosen + 1, "part_of_layer_variance": spread},
        )


def _listeners(splits: Sequence[Split]) -> tuple[int, int, int, int]:
    """In how many heads position alone decides half of the logits or more; in how many its interval lies above that,
    and reaches it; and how many heads there are."""
    along = [compute_positional_share(row) for split in splits for row in split.head_shares()]
    wanted = [TERMS.index(term) for name in POSITIONAL for term in GROUPS[name]]
    ends = [
        bootstrap_ratio(split.cov_NHt[:, head, wanted].sum(-1), split.var_NH[:, head])
        for split in splits
        for head in range(split.var_NH.shape[1])
    ]
    counts = (sum(value >= 0.5 for value in values) for values in (along, *zip(*ends, strict=True)))
    strong, surely, perhaps = counts
    return strong, surely, perhaps, len(along)
