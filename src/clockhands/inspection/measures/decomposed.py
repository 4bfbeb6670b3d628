"""What decides where a layer looks: words, positions, or both?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Figure, Finding, Mark, Panel, Table
from clockhands.inspection.drawing import mark, percent, percent_range, untrained_as
from clockhands.inspection.estimators.intervals import bootstrap
from clockhands.inspection.reading.logit_split import DATA, TERMS, Split
from clockhands.shapes import Float, Tensor

LAYERS = "What decides where a layer looks?"
HEADS = "Which heads listen to position?"
METHOD = (
    "The input of each attention layer is split into constant, position and content (x = μ + pos_t + rest), the "
    "layer is run on μ, on μ + pos and on x, and the logits become Σ_ab s q_a·k_b plus what the layer adds itself"
    " (biases over distances). Layer norms need no approximation, for the split is made after them; norms of "
    "queries and keys are held at the real input's. So are places that tokens give themselves; what that does to "
    "the constant's logits is the data-dependent term. μ and pos come from the other half of the texts, so that a"
    " model without position scores 0 and not one over the number of texts. The share of a term is cov(term, "
    "logit) / var(logit) after centring each query's logits over its keys, which softmax cannot see; shares sum "
    "to 1 and can be slightly negative. Only ordinary tokens count. Interval: texts resampled. Untrained: "
    "fresh weights."
)
SOURCE = "Ke et al. 2021 (TUPE), eq. 6; Dai et al. 2019, section 3.3, for the constant's terms; made exact by replay"

GROUPS: dict[str, tuple[str, ...]] = {
    "position–position": ("position–position",),
    "content–content": ("content–content",),
    "content–position": ("content–position",),
    "position–content": ("position–content",),
    "preferred words (constant–content)": ("constant–content", "content–constant"),
    "preferred places (constant–position)": ("constant–position", "position–constant", "added, position"),
    "distance (kernel and bias)": ("constant–constant", "added, constant"),
    "content looks at distances": ("added, content",),
    "words move the places (data-dependent)": (DATA,),
}
"""The terms in the groups people know. 'Query–key': content–position is a word that looks for a place."""

EXACT = 1e-4
"""The largest relative error of a split that counts as exact."""

POSITIONAL = ("position–position", "preferred places (constant–position)", "distance (kernel and bias)")
"""The groups that need to know nothing of the words."""


def grouped(shares_t: Float[Tensor, " t"]) -> dict[str, float]:
    """Shares of ``TERMS`` added up into ``GROUPS``."""
    return {name: sum(float(shares_t[TERMS.index(term)]) for term in terms) for name, terms in GROUPS.items()}


def positional(shares_t: Float[Tensor, " t"]) -> float:
    """The share that position and distance have without any word."""
    groups = grouped(shares_t)
    return sum(groups[name] for name in POSITIONAL)


def layers(splits: Sequence[Split], control: Sequence[Split] | None = None) -> Finding:
    """The split of every layer's logits, with the reconstruction error."""
    shares = [split.layer() for split in splits]
    along = [positional(share) for share in shares]
    fresh = [positional(split.layer()) for split in control] if control else None
    low, high = group_interval(splits[0], *POSITIONAL)
    content = grouped(shares[0])["content–content"]
    error = max(split.error for split in splits)
    moved = sum(float(share[TERMS.index(DATA)]) for share in shares) / len(shares)
    untrained = f" (untrained {percent(fresh[0])} and {percent(fresh[-1])})" if fresh else ""
    numbers = f"{percent(along[0])}, 95 % interval {percent_range(low, high)}; content alone {percent(content)}"
    if not float(splits[0].var_NH.sum()) > 0:
        first = "The first layer looks at all tokens alike: the logits of a query are equal."
    elif low <= 0:
        first = f"No effect of position alone on where the first layer looks was found ({numbers})."
    else:
        first = (
            f"Position alone decides {percent(along[0])} of where the first layer looks (95 % interval "
            f"{percent_range(low, high)}), content alone {percent(content)}."
        )
    return Finding(
        name="logits.layers",
        question=LAYERS,
        verdict=(
            f"{first} In the last layer position decides {percent(along[-1])}{untrained}. {_exactness(error, moved)}"
        ),
        value=along[0],
        interval=(low, high),
        references=untrained_as(fresh[0] if fresh else None),
        light="warn" if error > EXACT else "info",
        table=_layer_table(shares, splits),
        figure=_stacks([f"{index + 1}" for index in range(len(shares))], shares, "layer", fresh),
        method=METHOD,
        source=SOURCE,
        details={"error": error, "positional": along, "positional_untrained": fresh},
    )


def _exactness(error: float, moved: float) -> str:
    words = (
        f"Here the words move the places: {percent(moved)} of the logits are data-dependent. " if abs(moved) > 0 else ""
    )
    if error <= EXACT:
        return f"{words}The terms rebuild the logits to {error:.0e}."
    return f"{words}But the terms miss the logits by up to {percent(error)} of the largest: take them as a rough guide."


def group_interval(split: Split, *groups: str) -> tuple[float, float]:
    """The 95 % interval of the share that these ``GROUPS`` have of a layer's logits together."""
    wanted = [TERMS.index(term) for name in groups for term in GROUPS[name]]
    return bootstrap(split.cov_NHt[..., wanted].sum((1, 2)), split.var_NH.sum(1))


def _layer_table(shares: Sequence[Tensor], splits: Sequence[Split]) -> Table:
    rows = [(index + 1, *share, split.error) for index, (share, split) in enumerate(zip(shares, splits, strict=True))]
    return Table.of(("layer", *TERMS, "reconstruction error"), rows)


def heads(splits: Sequence[Split], control: Sequence[Split] | None = None) -> Finding:
    """The split of every head of the layer where position alone decides most, and of all others in the table."""
    along = [positional(split.layer()) for split in splits]
    chosen = max(range(len(along)), key=along.__getitem__)
    shares = splits[chosen].heads()
    spread = (splits[chosen].var_NH.sum(0) / splits[chosen].var_NH.sum()).tolist()
    by_head = [positional(share) for share in shares]
    best = max(range(len(by_head)), key=by_head.__getitem__)
    strong, surely, perhaps, every = _listeners(splits)
    fresh = _listeners(control)[0] if control else None
    untrained = f"; untrained {fresh}" if fresh is not None else ""
    return Finding(
        name="logits.heads",
        question=HEADS,
        verdict=(
            f"Position alone decides at least half of the logits in {strong} of {every} heads (95 % interval {surely} "
            f"to {perhaps}{untrained}); of layer {chosen + 1} it decides most in head {best} "
            f"({percent(by_head[best])})."
        ),
        value=float(strong),
        interval=(float(surely), float(perhaps)),
        unit="heads",
        references=untrained_as(fresh),
        light="info",
        table=Table.of(
            ("layer", "head", *TERMS),
            [(layer + 1, head, *row) for layer, split in enumerate(splits) for head, row in enumerate(split.heads())],
        ),
        figure=_stacks([str(head) for head in range(len(shares))], shares, f"head of layer {chosen + 1}", None),
        method=METHOD + " Heads are numbered from 0, layers from 1.",
        source=SOURCE,
        details={"layer": chosen + 1, "part_of_layer_variance": spread},
    )


def _listeners(splits: Sequence[Split]) -> tuple[int, int, int, int]:
    """In how many heads position alone decides half of the logits or more; in how many its interval lies above that,
    and reaches it; and how many heads there are."""
    along = [positional(row) for split in splits for row in split.heads()]
    wanted = [TERMS.index(term) for name in POSITIONAL for term in GROUPS[name]]
    ends = [
        bootstrap(split.cov_NHt[:, head, wanted].sum(-1), split.var_NH[:, head])
        for split in splits
        for head in range(split.var_NH.shape[1])
    ]
    counts = (sum(value >= 0.5 for value in values) for values in (along, *zip(*ends, strict=True)))
    strong, surely, perhaps = counts
    return strong, surely, perhaps, len(along)


def _stacks(names: Sequence[str], shares: Sequence[Tensor] | Tensor, label: str, fresh: list[float] | None) -> Figure:
    table = [grouped(share) for share in shares]
    marks: list[Mark] = []
    for group in GROUPS:
        heights = [row[group] for row in table]
        if max(abs(height) for height in heights) > 0.002:
            marks.append(mark("stack", names, torch.tensor(heights), label=group))
    if fresh is not None:
        marks.append(mark("points", names, torch.tensor(fresh), label="position alone, untrained", emphasis="null"))
    return Figure((Panel(tuple(marks), xlabel=label, ylabel="share of logit variance"),))
