"""How far two variants are apart, as a text tells it, and whether the loss of one grows on longer text."""

from __future__ import annotations

import numpy as np
from scipy import stats

from clockhands.comparison import Comparison
from clockhands.comparison.plan import MARGINS
from clockhands.comparison.statistics.paired import ALPHA, MIN_SEEDS
from clockhands.comparison.verdicts import format_number, format_range
from clockhands.findings import choose_digits
from clockhands.studies.soundness import INSIDE, count_seeds_above, estimate_gap, find_margin, list_values
from clockhands.studies.study import Ordering

GROWS, HOLDS = "grows", "holds"
"""What happens to the loss of a variant on longer text."""


def describe_gap(ordering: Ordering, comparison: Comparison, comparisons: int) -> str:
    """Return the first variant minus the second as text, with its interval over so many comparisons together.

    Of a claim of equality both ends with their signs, and the margin where they are shown to lie inside it; of a claim
    on every seed, in how many it holds.
    """
    if ordering.in_every_seed:
        return "{} of {}".format(*count_seeds_above(ordering, comparison))
    gap = estimate_gap(ordering, comparison, comparisons)
    if isinstance(gap, int):
        return "(not measured)"
    scored = ordering.on == "score"
    digits = comparison.plan.digits if scored else 2 if ordering.on.startswith(INSIDE) else 3
    if not ordering.alike:
        digits = choose_digits(gap.low, gap.high, digits, format_number)
        return f"{format_number(gap.value, digits)} [{gap.low:.{digits}f}, {gap.high:.{digits}f}]".replace("-", "−")
    margin, unit = find_margin(ordering, comparison), comparison.plan.unit if scored else "nats"
    within = gap.is_within(margin)
    low, high = format_range(*(gap.inner if within else (gap.low, gap.high)), digits)
    return f"from {low} to {high} {unit}" + (f", within ±{margin:g}" if within else "")


def judge_longer_text(comparison: Comparison, variant: str, growths: int = 1, split: str = "") -> str:
    """Return whether the loss of a variant ``grows`` on longer text, or ``holds``; or ``undecided``.

    It grows where the 95 % interval of its growth over seeds is above 0, and holds where the 90 % interval ends below
    the margin of a loss, which is one of two one-sided tests: it may fall. ``growths``: over how many growths these
    intervals hold together (Bonferroni). ``split``: the longer text; the longest if it is not given.
    """
    tried = [name for trial in comparison.get_trials(variant) for name in trial.longer]
    split = split or (tried[-1] if tried else "")
    by_seed = list_values(comparison, variant, f"{split}, growth") if split else {}
    if len(by_seed) < MIN_SEEDS:
        return "undecided"
    growth_S = np.array([float(value[0]) for value in by_seed.values()])
    error = growth_S.std(ddof=1) / len(growth_S) ** 0.5
    levels = 1 - ALPHA / growths / 2, 1 - ALPHA / growths
    wide, narrow = (float(stats.t.ppf(level, len(growth_S) - 1)) * error for level in levels)
    if growth_S.mean() - wide > 0:
        return GROWS
    return HOLDS if growth_S.mean() + narrow < MARGINS["loss"] else "undecided"
