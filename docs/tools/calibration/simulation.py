"""A study of the comparison itself: how often its sentences are false, on scores whose truth is planted.

Scores are drawn by a law, made into trials, and judged by ``judge`` as any others are. Variants are equal, so that
every "better" or "worse" is false; the interval of the baseline's score should cover the true one. Where one variant is
worse by just the margin of equality, every "equivalent" of it is false (``measure_equality``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from laws import Law
from scipy import stats

from clockhands.comparison.plan import Plan, Variant, make_plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.trial import Trial
from clockhands.comparison.verdicts import Verdict, judge
from clockhands.shapes import Float

MARGIN = 5.0
"""Within so many points two variants are equal, where that is tried: the margin of most studies of the answers."""
SEEDS, VARIANTS = (5, 10), (1, 11, 42)
"""Numbers of seeds, and of variants besides the baseline, that are tried with every law."""


@dataclass(frozen=True)
class Rate:
    """How often something happened, with the exact binomial interval (Clopper & Pearson 1934)."""

    count: int
    drawn: int

    @property
    def value(self) -> float:
        """The share; nan where nothing was drawn."""
        return self.count / self.drawn if self.drawn else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval."""
        if not self.drawn:
            return 0.0, 1.0
        interval = stats.binomtest(self.count, self.drawn).proportion_ci(0.95, "exact")
        return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class Cell:
    """What came out for one law, number of seeds and number of variants.

    ``false``: comparisons with a "better" or "worse" among equal variants. ``covered``: intervals of the baseline's
    score that hold the truth. ``learned``: exact intervals of the share of its seeds that learn which hold that truth.
    ``promised``: median over comparisons of the difference that could have been detected; None where none is promised.
    ``shown``: verdicts for a variant that differs by what was promised of it, in another study of the same variants.
    """

    law: str
    seeds: int
    variants: int
    false: Rate
    covered: Rate
    learned: Rate
    promised: float | None = None
    shown: Rate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``from_dict`` reads back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Cell:
        """Return the cell that ``to_dict`` wrote."""
        rates = {name: Rate(**written[name]) for name in ("false", "covered", "learned", "shown") if written[name]}
        return cls(**{**written, **rates})


@dataclass(frozen=True)
class Equality:
    """How often a variant is called equivalent: where it is worse by just the margin (false), and where it is equal."""

    law: str
    seeds: int
    variants: int
    false: Rate
    shown: Rate

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``from_dict`` reads back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Equality:
        """Return what ``to_dict`` wrote."""
        return cls(**{**written, "false": Rate(**written["false"]), "shown": Rate(**written["shown"])})


def measure_equality(law: Law, seeds: int, variants: int, drawn: int, seed: int = 0) -> Equality:
    """Judge ``drawn`` comparisons in which one variant is worse by ``MARGIN``, and as many in which all are equal."""
    rng = np.random.default_rng([seed, seeds, variants, 1])
    plan = replace(make_simulated_plan(seeds, variants), margin=MARGIN)
    counts = []
    for points in (MARGIN, 0.0):
        kinds = []
        for _ in range(drawn):
            scores_VSN = law.draw_worse(law.draw_scales(variants, rng), seeds, rng, points)
            kinds.append(judge(simulate(plan, law, scores_VSN))[1].kind)
        counts.append(kinds.count("equivalent"))
    return Equality(law.name, seeds, variants, Rate(counts[0], drawn), Rate(counts[1], drawn))


def measure_cell(law: Law, seeds: int, variants: int, drawn: int, seed: int = 0) -> Cell:
    """Judge ``drawn`` comparisons of equal variants, and put what they promise to the test by another study of each."""
    rng = np.random.default_rng([seed, seeds, variants])
    plan = make_simulated_plan(seeds, variants)
    false = covered = scored = learned = shown = 0
    promised = []
    for _ in range(drawn):
        scale_V = law.draw_scales(variants, rng)
        verdicts = judge(simulate(plan, law, law.draw(scale_V, seeds, rng)))
        base = verdicts[0]
        false += any(verdict.kind in ("better", "worse") for verdict in verdicts[1:])
        if base.interval is not None and base.learning.learned:
            scored += 1
            covered += base.interval[0] <= law.truth <= base.interval[1]
        learned += base.learning.interval[0] <= 100 * (1 - law.failing) <= base.learning.interval[1]
        promise = _find_promise(verdicts[1])
        if promise is not None and law.share is None:
            promised.append(promise)
            shown += _is_shown(plan, law, scale_V, promise, rng)
    rates = Rate(false, drawn), Rate(covered, scored), Rate(learned, drawn)
    if not promised:
        return Cell(law.name, seeds, variants, *rates)
    return Cell(law.name, seeds, variants, *rates, float(np.median(promised)), Rate(shown, len(promised)))


def _find_promise(verdict: Verdict) -> float | None:
    """Return the difference that the sentence says could have been detected, if it says one."""
    gap = verdict.difference
    return gap.detectable if gap is not None and "detected" in verdict.sentence else None


def _is_shown(plan: Plan, law: Law, scale_V: Float[np.ndarray, " V"], shift: float, rng: np.random.Generator) -> bool:
    """Tell whether another study of the same variants finds a difference that the first of them has."""
    scores_VSN = law.draw(scale_V, len(plan.seeds), rng)
    scores_VSN[1] += shift
    return judge(simulate(plan, law, scores_VSN))[1].kind == "better"


def make_simulated_plan(seeds: int, variants: int) -> Plan:
    """Return a plan of that many seeds, and variants besides the baseline. Nothing of it is trained."""
    names = [Variant(str(place), {"training.clip": 1.0 + place}) for place in range(variants + 1)]
    recipe = {"data": {"corpus": "roles"}, "training": {"max_steps": 1}}
    return make_plan(recipe, variants=names, seeds=seeds, metric="chrf", budget={"steps": 1})


def simulate(plan: Plan, law: Law, scores_VSN: Float[np.ndarray, "V S N"]) -> Comparison:
    """Return a comparison of a plan whose trials have these scores."""
    trials = [
        Trial(variant.name, seed, "finished", items=tuple(items_N), groups=law.groups)
        for variant, scores_SN in zip(plan.variants, scores_VSN, strict=True)
        for seed, items_N in zip(plan.seeds, scores_SN.tolist(), strict=True)
    ]
    return Comparison(plan, {}, tuple(trials))
