"""The answer to a study's question: its sentences with what was measured, and what the verdicts allow to conclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from clockhands.comparison import Comparison, conclude
from clockhands.comparison.plan import METRICS
from clockhands.comparison.verdicts import Verdict, format_score, judge
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
    if absent := _list_absent(study, verdicts):
        return _list_verdicts(comparison, verdicts, absent)
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


def _list_absent(study: Study, verdicts: Mapping[str, Verdict]) -> list[str]:
    """Return the variants of the plan that the study's answer or readings name and the comparison does not have."""
    slots = [(slot[1], slot[2] or "") for slot in SLOT.finditer(study.answer)]
    named = [
        rest if slot in OF_A_VARIANT else rest.rsplit(":", 2 if slot == "during" else 1)[0] for slot, rest in slots
    ]
    for reading in study.readings:
        named += [*reading.when, *(variant for ordering in reading.ordered for variant in ordering.variants)]
    absent = [variant for variant in dict.fromkeys(named) if variant not in verdicts]
    planned = {variant.name for variant in study.planned.variants} if absent else set()
    return [variant for variant in absent if variant in planned]


def _list_verdicts(comparison: Comparison, verdicts: Mapping[str, Verdict], absent: Sequence[str]) -> str:
    """Say what was measured of each variant, in place of an answer that speaks of variants that were not trained."""
    scores = [
        f"{variant}: {format_score(verdict, comparison.plan.digits)} ({verdict.sentence})."
        for variant, verdict in verdicts.items()
    ]
    verb = "was" if len(absent) == 1 else "were"
    return (
        f"The study's answer is written for its planned variants, and {join_words(absent)} {verb} not trained at this "
        f"size. Measured, {METRICS[comparison.plan.metric]}: {' '.join(scores)}"
    )


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
