"""The terms of the split logits in groups with a meaning, and the shares of these groups.

In names of tensors ``t`` are ``TERMS``.
"""

from __future__ import annotations

from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.reading.logit_parts import DATA_DEPENDENT, TERMS
from clockhands.inspection.reading.logit_split import LogitSplit
from clockhands.shapes import Float, Tensor

DISTANCE = "distance (curve and bias)"
CONTENT = "content–content"
PREFERRED_TOKENS = "preferred tokens (constant–content)"
PREFERRED_POSITIONS = "preferred positions (constant–position)"
"""Names of the groups that single measures ask for."""
TERM_GROUPS: dict[str, tuple[str, ...]] = {
    "position–position": ("position–position",),
    CONTENT: ("content–content",),
    "content–position": ("content–position",),
    "position–content": ("position–content",),
    PREFERRED_TOKENS: ("constant–content", "content–constant"),
    PREFERRED_POSITIONS: ("constant–position", "position–constant", "added, position"),
    DISTANCE: ("constant–constant", "added, constant"),
    "content × distance": ("added, content",),
    "tokens choose positions (data-dependent)": (DATA_DEPENDENT,),
}
"""The terms of each group, by its name in figures. Names are query–key: content–position is a query's content that
attends to positions. Preferred tokens attract every query alike, by their own content and the constant part of the
query; the reverse of that term goes with it. Preferred positions are the same of positions. "Distance" depends on the
distance alone: the constant–constant term, and what the layer adds to all texts."""

POSITIONAL = ("position–position", PREFERRED_POSITIONS, DISTANCE)
"""The groups that do not depend on which tokens a text has."""
ROUNDING = 1e-6
"""Shares of the logits below this are rounding."""


def sum_groups(shares_t: Float[Tensor, " t"]) -> dict[str, float]:
    """Return the shares of ``TERMS`` added up into ``TERM_GROUPS``."""
    return {name: sum(float(shares_t[TERMS.index(term)]) for term in terms) for name, terms in TERM_GROUPS.items()}


def compute_positional_share(shares_t: Float[Tensor, " t"]) -> float:
    """Return the share of the groups in which position and distance act alone, whatever the tokens are."""
    groups = sum_groups(shares_t)
    return sum(groups[name] for name in POSITIONAL)


def compute_group_interval(split: LogitSplit, *groups: str) -> tuple[float, float]:
    """Return the 95 % interval of the share that these ``TERM_GROUPS`` have of a layer's logits together."""
    wanted = [TERMS.index(term) for name in groups for term in TERM_GROUPS[name]]
    return bootstrap_ratio(split.cov_NHt[..., wanted].sum((1, 2)), split.var_NH.sum(1))
