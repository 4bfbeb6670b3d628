"""The answer to a study's question: its sentences with what was measured, and what the verdicts allow to conclude."""

from __future__ import annotations

from dataclasses import replace

from clockhands.comparison import Comparison, conclude
from clockhands.comparison.plan import METRICS
from clockhands.comparison.verdicts import format_score, judge
from clockhands.findings import Finding, Findings, join_words
from clockhands.studies.literature import check_ordering, tally_orderings
from clockhands.studies.slots import OF_A_VARIANT, SLOT, fill_slots
from clockhands.studies.study import Study


def answer_question(study: Study, comparison: Comparison) -> str:
    """Return the measured sentences, and the readings whose verdicts came out.

    A size of the study may leave variants out or rename them: where the answer speaks of such a variant, the scores and
    verdicts of the variants that there are stand in its place. Raises KeyError for an unknown slot.
    """
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    named = []
    for slot in SLOT.finditer(study.answer):
        rest = slot[2] or ""
        named.append(rest if slot[1] in OF_A_VARIANT else rest.rpartition(":")[0])
    for reading in study.readings:
        named += [*reading.when, *(variant for ordering in reading.ordered for variant in ordering.variants)]
    absent = [variant for variant in dict.fromkeys(named) if variant not in verdicts]
    planned = {variant.name for variant in study.planned.variants} if absent else set()
    if left_out := [variant for variant in absent if variant in planned]:
        digits = comparison.plan.digits
        scores = [
            f"{name}: {format_score(verdict, digits)} ({verdict.sentence})." for name, verdict in verdicts.items()
        ]
        verb = "was" if len(left_out) == 1 else "were"
        return (
            f"The study's answer is written for its planned variants, and {join_words(left_out)} {verb} not trained at "
            f"this size. Measured, {METRICS[comparison.plan.metric]}: {' '.join(scores)}"
        )
    sentences = [
        reading.say
        for reading in study.readings
        if all(verdicts[variant].kind == kind for variant, kind in reading.when.items())
        and all(
            check_ordering(ordering, comparison, len(reading.ordered)).verdict.startswith("reproduced")
            for ordering in reading.ordered
        )
    ]
    text = study.answer.replace("[[literature]]", tally_orderings(study, comparison))
    return " ".join([fill_slots(text, comparison, verdicts), *sentences])


def conclude_study(study: Study, comparison: Comparison, command: str = "") -> Findings:
    """Return the findings of the study's comparison, the answer first."""
    findings = conclude(comparison, command)
    answer = Finding(
        name="study.answer",
        question=study.question,
        verdict=answer_question(study, comparison),
        method=study.design,
        details={"claims": list(study.claims), "change": study.change},
        command=command,
    )
    return replace(findings, items=(answer, *findings.items))
