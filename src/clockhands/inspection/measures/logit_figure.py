"""What the two measures of the split logits have in common: their method, and stacked shares."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Figure, Mark, Panel, join_words
from clockhands.inspection.drawing import make_mark
from clockhands.inspection.reading.term_groups import POSITIONAL, TERM_GROUPS, sum_groups
from clockhands.shapes import Tensor

SPLIT_METHOD = (
    "The input of each attention layer is split into constant, position and content (x = μ + pos_t + rest), the "
    "layer is run on μ, on μ + pos and on x, and the logits become Σ_ab s q_a·k_b plus what the layer adds itself"
    " (biases over distances). Layer norms need no approximation, for the split is made after them; norms of "
    "queries and keys are frozen at the real input's. Positions that tokens choose themselves are frozen too; what "
    "that does to the constant's logits is the data-dependent term (where a scheme rewrites the logits by the tokens, "
    "as CoPE and DAPE do, what the content changes of all that is added). μ and pos come from the other half of the "
    "texts, so that a model without position scores 0 and not about 1/N with N texts. The share of a term is cov(term, "
    "logit) / var(logit) after centring each query's logits over its keys, which softmax cannot see; shares sum "
    "to 1 and can be slightly negative. Only ordinary tokens count. Interval: texts resampled. Untrained: "
    "fresh weights."
)
"""How both measures split the logits, for their ``method``."""
SPLIT_SOURCE = (
    "Ke et al. 2021 (TUPE), eq. 6; Dai et al. 2019, section 3.3, for the constant's terms; made exact by replay"
)
"""Where the split comes from, for their ``source``."""
EXPLAIN_POSITION_ALONE = f"Position alone is the sum of the terms that no token changes: {join_words(POSITIONAL)}"
"""What position alone adds up, for verdicts that give its share."""
LEAST_DRAWN = 0.002
"""Groups whose share is below this in every column are not drawn."""


def draw_shares(
    names: Sequence[str], shares: Sequence[Tensor] | Tensor, label: str, untrained: list[float] | None
) -> Figure:
    """Stack the shares of the groups of terms.

    Args:
        names: one for each column.
        shares: for each column the shares of ``TERMS``.
        label: of the horizontal axis.
        untrained: for each column the share of position alone in an untrained model; None where there is none.
    """
    columns = [sum_groups(share) for share in shares]
    marks: list[Mark] = []
    for group in TERM_GROUPS:
        heights = [column[group] for column in columns]
        if max(abs(height) for height in heights) > LEAST_DRAWN:
            marks.append(make_mark("stack", names, torch.tensor(heights), label=group))
    if untrained is not None:
        marks.append(
            make_mark("points", names, torch.tensor(untrained), label="position alone, untrained", emphasis="reference")
        )
    panel = Panel(tuple(marks), xlabel=label, ylabel="share of logit variance")
    return Figure((panel,), title="What the logits of attention are made of")
