"""What the sentences of answers rest on: where the results say something else, the page is not written.

A question names in ``rests``, ``ordered`` and ``numbers`` what its texts say of variants and numbers (`question.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gaps import GROWS, HOLDS, judge_longer_text
from kept import Facts, Measured, judge_once
from measurement_notes import describe_earlier_plan
from page_slots import LATER, fill_slot, find_pace_verdict
from question import SLOT, Question, Rest, Rests

from clockhands.comparison import Comparison
from clockhands.errors import ConfigError
from clockhands.studies import STUDIES
from clockhands.studies.soundness import check_ordering, list_tried


def check_rests(questions: Iterable[Question], measured: Measured, facts: Facts = MappingProxyType({})) -> None:
    """Raise ConfigError with every sentence whose results say something else now: another verdict, another task."""
    faults = []
    for question in questions:
        faults += _find_fallen(question, f"the answer of {question.name}", question.rests, measured, facts)
        faults += _find_reversed(question, measured)
        faults += _find_misplaced(question, measured, facts)
        for claim in question.claims:
            faults += _find_fallen(question, f"{question.name}: {claim.says!r}", claim.rests, measured, facts)
    if faults:
        raise ConfigError(faults, "the answers")


def count_comparisons(question: Question, name: str, comparison: Comparison) -> int:
    """Return over how many comparisons of two variants the intervals of a question hold together (Bonferroni).

    Those that the question tells, or all reported orderings of the study where these are more: a comparison that is
    undecided on the study's page must not come out here because the family is smaller.
    """
    compared = sum(not pair.ordering.in_every_seed for pair in question.ordered)
    return max(compared, len(list_tried(STUDIES[name.partition(".")[0]], comparison)))


def count_growths(question: Question) -> int:
    """Return of how many variants, of all studies, the question shows how a loss grows, or says whether it does."""
    own = (question.answer, question.why, question.note, question.limits, question.details)
    texts = [*own, *(claim.because for claim in question.claims), *question.cells]
    slots = [(slot[1], slot[2]) for text in texts for slot in SLOT.finditer(text) if slot[2].startswith("growth:")]
    shown = {(name, rest.removeprefix("growth:").rpartition(":")[0]) for name, rest in slots}
    rests = [question.rests, *(claim.rests for claim in question.claims)]
    rested = [(name, *pair) for part in rests for name, kinds in part.items() for pair in kinds.items()]
    judged = {(name, variant) for name, variant, kinds in rested if {GROWS, HOLDS} & {*_list_kinds(kinds)}}
    return max(1, len(shown | judged))


def _list_kinds(kinds: Rest | Sequence[Rest]) -> Sequence[Rest]:
    """Return the verdicts on a variant, which a file writes as one or as a list."""
    return [kinds] if isinstance(kinds, str) else kinds


def _find_reversed(question: Question, measured: Measured) -> list[str]:
    """Return a fault for each comparison of two variants that the text makes and the results do not."""
    checked = [
        (pair, check_ordering(pair.ordering, own, count_comparisons(question, pair.study, own)))
        for pair in question.ordered
        for own in (measured[pair.study],)
    ]
    return [
        f"the text of {question.name} says {check.claim!r}, and the study {pair.study} found it {check.verdict} "
        f"({check.measured})"
        for pair, check in checked
        if not check.verdict.startswith(pair.verdict)
    ]


def _find_misplaced(question: Question, measured: Measured, facts: Facts) -> list[str]:
    """Return a fault for each number that is not above the next, as a text says it is."""
    faults, growths = [], count_growths(question)
    for numbers in question.numbers:
        ranges = [(name, *find_range(name, measured, facts, growths)) for name in numbers.descending]
        for (more, low, _), (less, _, high) in itertools.pairwise(ranges):
            if not low > high:
                text = f"the text of {question.name} says {numbers.claim!r}, and"
                faults.append(f"{text} {more} is not above {less}: {low:g} against {high:g}")
    return faults


def find_range(name: str, measured: Measured, facts: Facts, growths: int = 1) -> tuple[float, float]:
    """Return both ends of a number's interval, which are one where it has none.

    ``name``: a value by ``FACT.KEY``, what was measured by ``STUDY/SLOT``, or a limit that is typed as a number.
    ``growths``: as of ``fill_slot``. Raises KeyError for a slot of nothing, ConfigError for what is no number.
    """
    study, _, slot = name.partition("/")
    fact, _, key = name.partition(".")
    if study in measured:
        verdicts = {verdict.variant: verdict for verdict in judge_once(study, measured[study])}
        text = fill_slot(slot, measured[study], verdicts, growths)
    else:
        text = str(facts[fact][key]) if fact in facts else name
    value, _, interval = text.replace("−", "-").partition(" [")
    low, _, high = interval.rstrip("]").partition(", ") if interval else (value, "", value)
    try:
        return float(low), float(high)
    except ValueError as fault:
        raise ConfigError([f"{name} is {text!r}, which is no number"], "the answers") from fault


def _find_fallen(question: Question, sentence: str, rests: Rests, measured: Measured, facts: Facts) -> list[str]:
    faults = []
    for name, rested in rests.items():
        kinds = [(variant, kind) for variant, kinds in rested.items() for kind in _list_kinds(kinds)]
        if name in facts:
            faults += _compare_facts(sentence, name, kinds, facts[name])
            continue
        study, _, size = name.partition(".")
        if earlier := describe_earlier_plan(STUDIES[study], measured[name], size or "cpu"):
            faults.append(f"{sentence} rests on the study {name}. {earlier}")
        for variant, kind in kinds:
            measured_kind = _find_kind(question, name, measured[name], variant, kind)
            if measured_kind != kind:
                faults.append(
                    f"{sentence} rests on {variant!r} being {kind}, and the study {name} found {measured_kind}"
                )
    return faults


def _find_kind(question: Question, name: str, comparison: Comparison, variant: str, kind: Rest) -> str:
    """Return what a study found of a variant in the matter that a kind is about: pace, longer text, or the score."""
    if kind == LATER:
        return find_pace_verdict(comparison, variant)
    if kind in (GROWS, HOLDS):
        return judge_longer_text(comparison, variant, count_growths(question), question.longer)
    return {verdict.variant: verdict.kind for verdict in judge_once(name, comparison)}[variant]


def _compare_facts(sentence: str, name: str, kinds: Iterable[tuple[str, Rest]], values: Mapping[str, Any]) -> list[str]:
    """Return a fault for each verdict of a fact, "VALUE, verdict", that is not the one that a sentence rests on."""
    return [
        f"{sentence} rests on {value!r} being {kind}, and {name} has {values[f'{value}, verdict']}"
        for value, kind in kinds
        if values[f"{value}, verdict"] != kind
    ]
