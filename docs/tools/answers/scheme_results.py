"""What the studies measured of a scheme: the results in which it stands, a choice of them, and each as a sentence.

The results are found by the plans (`scheme_use.py`), so that a new study, or a new size of one, is told by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gaps import HOLDS, judge_longer_text
from kept import Measured, judge_once
from page_slots import fill_slot
from rests import find_range
from scheme_use import SchemeUse, read_uses

from clockhands.comparison import Comparison, Plan
from clockhands.comparison.plan import METRICS
from clockhands.comparison.verdicts import Verdict, format_score
from clockhands.studies import STUDIES

__all__ = [
    "MOST_TOLD",
    "RULE",
    "Result",
    "choose_results",
    "collect_results",
    "describe_result",
    "describe_task",
    "list_largest",
    "list_users",
]

MOST_TOLD = 8
"""Results that are told of a scheme, at most: more are not read."""
MOST_ORDERINGS = 3
"""Published orderings that are told of a scheme, at most; they count as results."""
RULE = (
    f"At most {MOST_TOLD} results are told of a scheme. Up to {MOST_ORDERINGS} of them are published orderings of two "
    "variants of a study, one of which has the scheme beside others and the other has those alone. The others are of "
    "variants that have the scheme where the baseline of the study has other positions, and that differ from it in "
    "positions alone: the difference is that of all their positions together. One result of each study is told in "
    "turn, studies of language models first; within a study first those with the fewest schemes, then those with the "
    "fewest settings. Of a variant that a study trained on one text in several sizes (`clockhands study NAME --scale "
    "SIZE`), the result with the most computation is told; of all baselines with the scheme, that of the language "
    "model with the most. Intervals hold for all variants, or all orderings, of a study together, and those of a loss "
    "beyond the trained length too. A loss can fall on longer text because fewer tokens stand near its beginning: "
    "that does not show that far tokens are used."
)
"""How results are chosen, for the readers of the pages."""
TASKS = {
    ("roles", "exact"): "sentences of English to Esperanto that are exactly right, in percent",
    ("numbers", "exact"): "numbers in words that are exactly right, in percent",
    ("stdlib", "loss"): "loss on Python's source",
    ("facts", "loss"): "loss on lines of code with facts to recall",
    ("parallel", "bleu"): "BLEU of captions",
}
"""What is measured, by corpus and metric; of others their names are told."""


@dataclass(frozen=True)
class Result:
    """What one variant of a comparison says of a scheme.

    ``name``: of the comparison, a study or study and size (``how-far.twice``). ``use``: the schemes of the variant.
    ``baseline``: the schemes of the baseline. ``settings``: how many the variant overrides.
    """

    name: str
    comparison: Comparison
    verdict: Verdict
    use: SchemeUse
    baseline: SchemeUse
    settings: int

    @property
    def study(self) -> str:
        """The name of the study."""
        return self.name.partition(".")[0]

    @property
    def worse(self) -> bool:
        """Whether the variant is shown to be worse than the baseline of its comparison."""
        return self.verdict.kind == "worse"

    @property
    def is_baseline(self) -> bool:
        """Whether others are compared with it."""
        return self.verdict.variant == self.comparison.plan.baseline

    @property
    def computation(self) -> int:
        """Floating-point operations of its training."""
        cost = self.comparison.costs[self.verdict.variant]
        return cost.flops * cost.steps

    @property
    def longest(self) -> str:
        """The longest text that a language model read in every seed; "" if there is none."""
        plan = self.comparison.plan
        if plan.recipe.model.architecture != "decoder" or plan.metric != "loss":
            return ""
        trials = self.comparison.get_trials(self.verdict.variant)
        read = [[split for split, text in trial.longer.items() if text.loss is not None] for trial in trials]
        return next((split for split in reversed(read[0]) if all(split in own for own in read)), "") if read else ""


def list_users(measured: Measured) -> dict[str, list[str]]:
    """Return the studies with a variant that uses a scheme, by scheme: those that are planned, and those measured."""
    users: dict[str, list[str]] = {}
    plans = [(name, study.planned) for name, study in STUDIES.items()]
    plans += [(name.partition(".")[0], comparison.plan) for name, comparison in measured.items()]
    for study, plan in plans:
        for scheme in frozenset[str]().union(*(use.used for use in read_uses(plan).values())):
            users.setdefault(scheme, []).append(study)
    return {scheme: list(dict.fromkeys(studies)) for scheme, studies in users.items()}


def collect_results(measured: Measured) -> dict[str, list[Result]]:
    """Return all results that can say something of a scheme, by scheme; those without a verdict are left out."""
    results: dict[str, list[Result]] = {}
    for name, comparison in measured.items():
        if STUDIES[name.partition(".")[0]].unscored:
            continue
        uses, variants = read_uses(comparison.plan), {variant.name: variant for variant in comparison.plan.variants}
        for verdict in judge_once(name, comparison):
            variant, use = variants[verdict.variant], uses[verdict.variant]
            result = Result(name, comparison, verdict, use, uses[comparison.plan.baseline], len(variant.overrides))
            for scheme in use.compared if _is_decided(result) else ():
                results.setdefault(scheme, []).append(result)
    return results


def _is_decided(result: Result) -> bool:
    """Return whether there is something to tell: of a baseline, how it reads longer text; of others, a verdict."""
    if result.is_baseline:
        return bool(result.longest)
    return result.verdict.kind != "too few seeds"


def list_largest(results: Iterable[Result]) -> list[Result]:
    """Return of each variant of a study on one text the result with the most computation, and one baseline of all."""
    largest: dict[tuple[str, ...], Result] = {}
    for result in results:
        plan, variant = result.comparison.plan, result.verdict.variant
        key = ("a baseline",) if result.is_baseline else (result.study, plan.recipe.corpus, variant)
        if key not in largest or result.computation > largest[key].computation:
            largest[key] = result
    return list(largest.values())


def choose_results(results: Iterable[Result], most: int = MOST_TOLD) -> list[Result]:
    """Return those of the results that are told of a scheme, as `RULE` says, study by study; at most so many."""
    by_study: dict[str, list[Result]] = {}
    for result in sorted(results, key=_rank):
        by_study.setdefault(result.study, []).append(result)
    places = [(place, study) for study, own in by_study.items() for place in range(len(own))]
    chosen = sorted(places, key=lambda pair: pair[0])[:most]
    return [result for study, own in by_study.items() for place, result in enumerate(own) if (place, study) in chosen]


def _rank(result: Result) -> tuple[bool, int, int, int, bool]:
    """Return what a result is sorted by: as `RULE` says, and in the end the text of the study's own plan first."""
    study, recipe = STUDIES[result.study], result.comparison.plan.recipe
    planned = study.planned.recipe
    other_task = planned.model.architecture != "decoder"
    return other_task, study.place, len(result.use.used), result.settings, recipe.corpus != planned.corpus


def describe_task(plan: Plan) -> str:
    """Return what a plan measures, in words."""
    corpus = plan.recipe.corpus
    return TASKS.get((corpus, plan.metric), f"{METRICS[plan.metric]} on *{corpus}*")


def describe_result(result: Result, scheme: str) -> str:
    """Return a result as a sentence of the page of a scheme, with its intervals."""
    plan, verdict = result.comparison.plan, result.verdict
    task = describe_task(plan)
    if result.is_baseline:
        said = f"{task}: {format_score(verdict, plan.digits)}, {verdict.sentence}"
    else:
        said = f"{task}, against {_name(plan.baseline, result.baseline, plan.baseline)}: {verdict.sentence}"
    return f"{_name(verdict.variant, result.use, scheme)}, {said}{_describe_growth(result)}"


def _name(variant: str, use: SchemeUse, scheme: str) -> str:
    """Return the name of a variant, with its schemes where neither the name nor the page says them."""
    return f"*{variant}*" + (f" ({use.words})" if use.words not in (scheme, variant) else "")


def _describe_growth(result: Result) -> str:
    """Return what the loss does beyond the trained length, judged over all variants of the comparison together."""
    split, variant, growths = result.longest, result.verdict.variant, len(result.comparison.plan.variants)
    if not split:
        return ""
    measured, slot = {result.name: result.comparison}, f"growth:{variant}:{split}"
    judged = judge_longer_text(result.comparison, variant, growths, split)
    if judged == HOLDS and find_range(f"{result.name}/{slot}", measured, {}, growths)[1] < 0:
        judged = "falls"
    changed = fill_slot(slot, result.comparison, {variant: result.verdict}, growths)
    where = f"at {split.partition(' × ')[0]} times the trained length"
    if judged == "undecided":
        return f"; whether its loss grows {where} is undecided ({changed} nats)"
    return f"; {where} its loss {judged} ({changed} nats)"
