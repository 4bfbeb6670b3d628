"""Published orderings of two variants that differ in one scheme: what it does beside others, and not all together."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kept import Measured
from scheme_results import describe_task
from scheme_use import COMPOSITION, NONE, SchemeUse, read_uses

from clockhands.comparison import Comparison
from clockhands.studies import STUDIES
from clockhands.studies.soundness import INSIDE, CheckedOrdering, check_ordering, list_tried
from clockhands.studies.study import Ordering

__all__ = ["SchemeOrdering", "collect_orderings"]


@dataclass(frozen=True)
class SchemeOrdering:
    """An ordering that a study checked, of two variants that differ in one scheme.

    ``task``: what was measured. ``worse``: whether the variant with the scheme is shown to be worse than the other.
    """

    study: str
    task: str
    checked: CheckedOrdering
    worse: bool

    @property
    def sentence(self) -> str:
        """The claim with its source, whether it was found here too, and the difference that was measured."""
        measured = re.sub(r"(?<=[ \[])-(?=\d)", "−", self.checked.measured)
        outcome = f"{self.checked.verdict}{f' ({measured})' if measured else ''}"
        return f"{self.checked.source}: “{self.checked.claim}” Here, {self.task}: {outcome}"


def collect_orderings(measured: Measured) -> dict[str, list[SchemeOrdering]]:
    """Return the orderings of all studies that tell a scheme from its absence, by scheme.

    Their intervals hold for all orderings of a study together, as on its page. What was measured inside models is left
    out: it is neither better nor worse.
    """
    orderings: dict[str, list[SchemeOrdering]] = {}
    for name, study in STUDIES.items():
        if name not in measured or study.unscored:
            continue
        comparison, uses = measured[name], read_uses(measured[name].plan)
        tried = list_tried(study, comparison)
        for ordering in tried:
            scheme = "" if ordering.on.startswith(INSIDE) else _find_single(*(uses[own] for own in ordering.variants))
            if scheme:
                checked = check_ordering(ordering, comparison, len(tried))
                loser = _find_worse(ordering, comparison, len(tried))
                worse = loser in uses and scheme in uses[loser].used
                isolating = SchemeOrdering(name, describe_task(comparison.plan), checked, worse)
                orderings.setdefault(scheme, []).append(isolating)
    return orderings


def _find_worse(ordering: Ordering, comparison: Comparison, comparisons: int) -> str:
    """Return the variant that is shown to be worse than the other, "" if neither is."""
    first, second = ordering.variants
    above = check_ordering(replace(ordering, alike=(), more=first, less=second), comparison, comparisons).verdict
    higher = {"reproduced": first, "contradicted": second}.get(above, "")
    lower = {first: second, second: first}.get(higher, "")
    return lower if ordering.on == "score" and comparison.plan.higher_is_better else higher


def _find_single(first: SchemeUse, second: SchemeUse) -> str:
    """Return the scheme that one of two variants has and the other does not, if they share all others; "" if none."""
    differing = (first.used ^ second.used) - {COMPOSITION}
    single = differing - {NONE} or differing
    shared = (first.used & second.used) - {COMPOSITION, NONE}
    return next(iter(single)) if len(single) == 1 and shared else ""
