"""Which heads have logits that depend on position? The split of the logits, head by head."""

from __future__ import annotations

import torch

from clockhands.findings import SHARE, Finding, Table
from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.measures.logit_figure import SPLIT_METHOD, SPLIT_SOURCE, draw_shares
from clockhands.inspection.measures.measure import ATTENTION_HEADING, WINDOWS, Measure, make_untrained_reference
from clockhands.inspection.number_format import format_percent, format_percent_range
from clockhands.inspection.reading.logit_parts import TERMS
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.term_groups import POSITIONAL, TERM_GROUPS
from clockhands.shapes import Float, Tensor

_POSITION_ALONE = [TERMS.index(term) for name in POSITIONAL for term in TERM_GROUPS[name]]


class LogitHeads(Measure):
    """The split of every head; drawn for the layer with the head in which the share of position alone is largest."""

    name = "logits.heads"
    question = "Which heads have logits that depend on position?"
    references = ("untrained",)
    method = SPLIT_METHOD + (
        " The interval is that of the one head that is named, as if it had been chosen before. How many heads attend "
        "by position is counted on their attention, and there alone; a head that follows the token at one "
        "position is not named."
    )
    source = SPLIT_SOURCE
    heading = ATTENTION_HEADING
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every head; the value is the largest share that position alone has in the logits of one."""
        splits = reading.logit_splits
        shares_LH = compute_head_shares(reading)
        ranked_LH = shares_LH.clone()
        for at in reading.heads_of_tokens:
            ranked_LH[at] = -torch.inf
        layer, head = divmod(int(ranked_LH.argmax()), shares_LH.shape[1])
        value, split = float(shares_LH[layer, head]), splits[layer]
        low, high = bootstrap_ratio(split.cov_NHt[:, head, _POSITION_ALONE].sum(-1), split.var_NH[:, head])
        untrained = float(compute_head_shares(reading.control).max()) if reading.control else None
        term_shares = split.compute_head_shares()
        numbers = f"95 % interval {format_percent_range(low, high)}"
        if untrained is not None:
            numbers += f"; the largest untrained {format_percent(untrained)}"
        none = "" if low > 0 else "No effect of position alone on the logits of a head was found. "
        return self.make_finding(
            f"{none}The share of position alone in the variance of its logits is largest in layer {layer + 1} head "
            f"{head + 1}, {format_percent(value)} ({numbers}); the median head has "
            f"{format_percent(float(shares_LH.quantile(0.5)))}.",
            value,
            unit=SHARE,
            interval=(low, high),
            references=make_untrained_reference(untrained),
            light="info",
            table=Table.of(
                ("layer", "head", "position alone", *TERMS),
                [
                    (index + 1, number, shares_LH[index, number - 1], *row)
                    for index, of_layer in enumerate(splits)
                    for number, row in enumerate(of_layer.compute_head_shares(), 1)
                ],
            ),
            figure=draw_shares(
                [str(number + 1) for number in range(len(term_shares))], term_shares, f"head of layer {layer + 1}", None
            ),
            details={"layer": layer + 1, "part_of_layer_variance": (split.var_NH.sum(0) / split.var_NH.sum()).tolist()},
        )


def compute_head_shares(reading: Reading) -> Float[Tensor, "L H"]:
    """Return the share of position alone in the logits of every head."""
    return torch.stack([split.compute_head_shares()[:, _POSITION_ALONE].sum(-1) for split in reading.logit_splits])
