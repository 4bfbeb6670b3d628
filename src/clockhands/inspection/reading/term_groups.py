"""The terms of the split logits in the groups that people know, and the shares of these groups."""

from __future__ import annotations

from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.reading.logit_split import DATA, TERMS, Split
from clockhands.shapes import Float, Tensor

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

POSITIONAL = ("position–position", "preferred places (constant–position)", "distance (kernel and bias)")
"""The groups that need to know nothing of the words."""


def sum_groups(shares_t: Float[Tensor, " t"]) -> dict[str, float]:
    """Shares of ``TERMS`` added up into ``GROUPS``."""
    return {name: sum(float(shares_t[TERMS.index(term)]) for term in terms) for name, terms in GROUPS.items()}


def compute_positional_share(shares_t: Float[Tensor, " t"]) -> float:
    """The share that position and distance have without any word."""
    groups = sum_groups(shares_t)
    return sum(groups[name] for name in POSITIONAL)


def compute_group_interval(split: Split, *groups: str) -> tuple[float, float]:
    """The 95 % interval of the share that these ``GROUPS`` have of a layer's logits together."""
    wanted = [TERMS.index(term) for name in groups for term in GROUPS[name]]
    return bootstrap_ratio(split.cov_NHt[..., wanted].sum((1, 2)), split.var_NH.sum(1))
