"""What stands under a table of the answers: of each study how it was measured, and how many models were compared."""

from __future__ import annotations

from collections import Counter

from kept import Measured, judge_once
from question import SLOT, Question

from clockhands.comparison import Comparison, Plan
from clockhands.comparison.learning import score_matrix
from clockhands.comparison.plan import format_margin
from clockhands.comparison.statistics.paired import MIN_SEEDS
from clockhands.comparison.task_findings import describe_ceiling
from clockhands.errors import show_value
from clockhands.studies import STUDIES, Study
from clockhands.studies.soundness import find_ceiling_once


def describe_measurements(question: Question, measured: Measured) -> list[str]:
    """Return how each study was measured that the cells of a table draw on."""
    slots = [slot for cell in question.cells for slot in SLOT.finditer(cell)]
    shown = {(slot[1], slot[2].partition(":")[2]) for slot in slots if slot[2].startswith(("verdict:", "kind:"))}
    judged = Counter(name for name, variant in shown if name in measured and variant != measured[name].plan.baseline)
    names = dict.fromkeys(slot[1] for slot in slots)
    lines = [_describe_measurement(name, measured[name], judged[name]) for name in names if name in measured]
    return [*(f"- {line}" for line in lines), ""] if lines else []


def _describe_measurement(name: str, comparison: Comparison, judged: int) -> str:
    """Return how a study was measured: task, size, seeds and items; if any is ``judged``, margin and comparisons too.

    ``judged``: how many of the comparisons with the baseline the reader sees; the intervals hold for all of the study.
    """
    plan = comparison.plan
    study, _, size = name.partition(".")
    study = f"[{study}](studies/{study}.md)" if not size else f"{study} --scale {size}"
    kind, amount = plan.budget
    items = score_matrix(comparison, plan.baseline).shape[1]
    margin = f", equal within ±{format_margin(plan.equal_within, plan.unit)}"
    verdicts = f"{margin}, {_describe_family(name, comparison, judged)}" if judged else ""
    text = ", each with a text of its own" if plan.redraw_text else ""
    precision = ", computed in bf16" if plan.recipe.training.precision == "bf16" else ""
    unit = "stretches or documents of the test text" if plan.metric == "loss" else "test items"
    counted = "" if STUDIES[name.partition(".")[0]].unscored else f", {items:,} {unit}"
    return (
        f"{study}: corpus {plan.recipe.corpus}, {_describe_widths(plan)}, {amount:,g} {kind}{precision}, "
        f"{_count_seeds(comparison)} seeds{text}{counted}{verdicts}"
    )


def _describe_family(name: str, comparison: Comparison, judged: int) -> str:
    """Return how many models were compared with the baseline, in intervals that hold together and by other tests."""
    others = len(comparison.plan.variants) - 1
    gaps = [verdict.difference for verdict in judge_once(name, comparison) if verdict.difference is not None]
    together = sum(gap.seeds >= MIN_SEEDS for gap in gaps)  # those of fewer seeds have intervals of their own
    tested = f", {together} of them by intervals that hold together" if 1 < together < others else ""
    tested = " together" if together == others > 1 else tested
    shown = "" if judged == others else f"; {judged} {'is' if judged == 1 else 'are'} shown"
    # A reader who sees two tables with the same counts and other p takes one of them for an error.
    counted = any(", p " in verdict.sentence for verdict in judge_once(name, comparison))
    family = "; each p is for all models of this study that are tested alike" if counted and others > 1 else ""
    return f"{'one' if others == 1 else others} compared with the baseline{tested}{shown}{family}"


def _describe_widths(plan: Plan) -> str:
    """Return the width of the models, or from which to which they are."""
    own = plan.recipe.model.d_model
    widths = sorted({variant.overrides.get("model.d_model", own) for variant in plan.variants})
    return f"width {widths[0]}" if len(widths) == 1 else f"widths {widths[0]} to {widths[-1]:,}"


def _count_seeds(comparison: Comparison) -> str:
    """Return the number of seeds, and of a comparison that has not ended the most that a variant has so far."""
    most = max(len(comparison.get_trials(variant.name)) for variant in comparison.plan.variants)
    planned = len(comparison.plan.seeds)
    return f"{most} of {planned} planned" if comparison.missing else f"{planned}"


def describe_missing(comparison: Comparison) -> str:
    """Return a sentence on the trials that have not been run, and what follows from it; "" where all have."""
    if not comparison.missing:
        return ""
    counts = [len(comparison.get_trials(variant.name)) for variant in comparison.plan.variants]
    least, most = min(counts), max(counts)
    seeds = f"{least}" if least == most else f"{least} to {most}"
    few = f" Fewer than {MIN_SEEDS} seeds decide nothing, whatever the scores are." if least < MIN_SEEDS else ""
    return (
        f"Not all of it has been run: {seeds} of {len(comparison.plan.seeds)} seeds of each variant so far "
        f"({len(comparison.trials)} of {len(comparison.plan.trials)} trainings).{few}"
    )


def describe_earlier_plan(study: Study, comparison: Comparison, size: str = "cpu") -> str:
    """Return a sentence on results of another task than the study has now, naming what differs; "" for the same.

    ``size``: in which the study was run.
    """
    planned = study.planned if size == "cpu" else study.make_plan(size=size)
    then, now = (plan.to_dict()["recipe"] for plan in (comparison.plan, planned))  # with the names of given files alone
    changed = [
        f"{table}.{key} was {show_value(then[table].get(key))}, now {show_value(now[table].get(key))}"
        for table in ("data", "tokenizer")
        for key in sorted({*then[table], *now[table]})
        if then[table].get(key) != now[table].get(key)
    ]
    if not changed:
        return ""
    return (
        f"The results of the study {study.name} are of an earlier task "
        f"({'; '.join(changed)}); until it is run again, no conclusion here rests on its scores."
    )


def describe_order_blind(study: Study, plan: Plan) -> str:
    """Return whether the task can be done without order: the ceiling, or why it says nothing of this task.

    Where it says nothing it is not computed: the text may not be on this machine, or be another on another machine.
    """
    reason = (plan.despite or study.despite).get("ceiling")
    if reason is not None:
        return reason
    sentence = describe_ceiling(find_ceiling_once(plan)).verdict
    return f"{sentence} No model of this study is scored." if study.unscored else sentence
