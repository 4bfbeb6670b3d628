"""Find sentences of an answer that compare variants and have no guard, as far as a program can tell.

A guard is what the question's file says of a variant in ``rests``, ``ordered`` or ``numbers`` (`question.py`). A
variant whose figure a text shows needs one on the same matter: the score, a split of longer text, a measure, the pace.
So does every number that was measured in one model. Words are counted: "undecided" may not stand in the texts more
often than the guards say it, and words of equality, or of better and worse, need a guard of their kind. Tables need
none, since their cells say nothing but what was measured. What no program sees is whether a sentence says what its
guard says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from clockhands.comparison import Comparison
from clockhands.studies.exact import FACTS
from clockhands.studies.literature import GROWS, HOLDS, find_longest
from clockhands.studies.pace import LATER
from clockhands.studies.question import EXACT, ORDERED, SLOT, Question, Rest

Measured = Mapping[str, Comparison]
"""Comparisons by the name of their study, those of other sizes by name and size: ``scale.long``."""
Facts = Mapping[str, Mapping[str, Any]]
"""What was computed exactly, or measured in one model: values by key, by the name of the fact."""
Shown = tuple[str, str, str]
"""Study, variant, and the matter, in the words of an ordering's ``on``; or `EXACT`, "FACT.KEY" and ""."""

PACE = "pace"
SCORED = ("score", "verdict", "kind", "other")
STARTS = ("loss", "all four")
"""Of a model before anything is done to it: the others are compared with it, and it with nothing."""
UNDECIDED = re.compile(r"\bundecided\b", re.IGNORECASE)
EQUAL = re.compile(r"\b(?:equivalent|equal within|do(?:es)? as well|as well as|(?<!times )as much as)\b", re.IGNORECASE)
UNEQUAL = re.compile(r"\b(?:better|worse|beat|beats|behind)\b", re.IGNORECASE)
BARE = re.compile(SLOT.pattern + r"|`[^`]*`|“[^”]*”", re.DOTALL)
"""What is no sentence of ours: slots, formulas, quotations."""


def find_unguarded(question: Question, measured: Measured, facts: Facts) -> list[str]:
    """Return a fault for each variant that a text shows without a guard, and for each kind of words without one."""
    guarded = {*_list_rested(question, measured), *_list_ordered(question), *_list_numbers(question, measured, facts)}
    faults = []
    for place, text in list_texts(question):
        missing = sorted({*_list_shown(text, measured, facts)} - guarded)
        faults += [
            f"{place} shows {_describe(shown)}, and nothing in rests, ordered or numbers guards it" for shown in missing
        ]
    return faults + _find_unguarded_words(question)


def list_texts(question: Question) -> list[tuple[str, str]]:
    """Return the texts that say something of results, each with its place."""
    own = [
        (f"the {key} of {question.name}", getattr(question, key))
        for key in ("answer", "why", "note", "limits", "details")
    ]
    return own + [(f"{question.name}: {claim.says!r}", claim.because) for claim in question.claims]


def _describe(shown: Shown) -> str:
    study, variant, on = shown
    return repr(variant) if study == EXACT else f"{variant!r} of the study {study} ({on})"


def _list_shown(text: str, measured: Measured, facts: Facts) -> Iterator[Shown]:
    """Yield what the slots of a text show and a guard can be about; a baseline's score is compared with nothing."""
    for slot in SLOT.finditer(text):
        study, rest = slot[1], slot[2]
        if study == EXACT:
            yield from _list_measured_fact(rest.partition(":")[0], facts)
        if study in (EXACT, ORDERED):  # what is ordered is its own guard
            continue
        kind, _, rest = rest.partition(":")
        variant, _, name = rest.rpartition(":")
        if kind in SCORED:
            variant = variant if kind == "other" else rest
            if variant != measured[study].plan.baseline:
                yield study, variant, "score"
        elif kind in ("longer", "growth"):
            yield study, variant, name
        elif kind in ("before", "after"):
            yield study, variant, f"{kind}: {name}"
        elif kind == "during":
            variant, _, step = variant.rpartition(":")
            yield study, variant, f"step {step}: {name}"
        elif kind in ("reached", "slower"):
            yield study, rest, PACE


def _list_measured_fact(path: str, facts: Facts) -> Iterator[Shown]:
    """Yield the fact of a slot if it was measured in one model; counts, and what a formula gives, need no guard."""
    name, _, key = path.partition(".")
    value = facts[name][key]
    if name in FACTS or isinstance(value, int) or key.removeprefix("right, ") in STARTS:
        return
    judged = [known for known in list_judged(facts[name]) if re.search(rf"(?:^|, ){re.escape(known)}(?:, |$)", key)]
    if judged:
        yield EXACT, f"{name}.{max(judged, key=len)}", ""
    elif isinstance(value, float):
        yield EXACT, path, ""


def list_judged(values: Mapping[str, Any]) -> list[str]:
    """Return the keys of a fact that have a verdict."""
    return [key.removesuffix(", verdict") for key in values if key.endswith(", verdict")]


def _list_rests(question: Question) -> Iterator[tuple[str, str, Rest]]:
    """Yield study, variant and verdict of every rest of the question and of its claims."""
    for rests in (question.rests, *(claim.rests for claim in question.claims)):
        for study, kinds_by_variant in rests.items():
            for variant, kinds in kinds_by_variant.items():
                for kind in list_kinds(kinds):
                    yield study, variant, kind


def list_kinds(kinds: Rest | Sequence[Rest]) -> Sequence[Rest]:
    """Return the verdicts on a variant, which a file writes as one or as a list."""
    return [kinds] if isinstance(kinds, str) else kinds


def _list_rested(question: Question, measured: Measured) -> Iterator[Shown]:
    for study, variant, kind in _list_rests(question):
        if study not in measured:
            yield EXACT, f"{study}.{variant}", ""
        elif kind == LATER:
            yield study, variant, PACE
            yield study, measured[study].plan.baseline, PACE
        elif kind in (GROWS, HOLDS):
            yield study, variant, question.longer or find_longest(measured[study], variant)
        else:
            yield study, variant, "score"


def _list_ordered(question: Question) -> Iterator[Shown]:
    for pair in question.ordered:
        for variant in pair.ordering.variants:
            yield pair.study, variant, pair.ordering.on.removesuffix(", growth")


def _list_numbers(question: Question, measured: Measured, facts: Facts) -> Iterator[Shown]:
    for name in (name for numbers in question.numbers for name in numbers.descending):
        if "/" in name:
            yield from _list_shown(f"[[{name}]]", measured, facts)
        else:
            yield EXACT, name, ""


def _find_unguarded_words(question: Question) -> list[str]:
    """Return a fault for words of a verdict that no guard says."""
    text = BARE.sub("", "\n".join(text for _, text in list_texts(question)))
    kinds = [kind for _, _, kind in _list_rests(question)]
    orders = [
        pair.verdict if pair.verdict == "undecided" else _name_order(pair.ordering.alike) for pair in question.ordered
    ]
    said = len(UNDECIDED.findall(text))
    guards = [*kinds, *orders].count("undecided")
    faults = []
    if said > guards:
        faults.append(f"the texts of {question.name} say “undecided” {said} times, and {guards} of its guards do")
    for words, allowed in (
        (EQUAL, {"equivalent", "holds", "alike"}),
        (UNEQUAL, {"better", "worse", "later", "more", "less", "grows", "ordered"}),
    ):
        if question.studies and (word := words.search(text)) and not allowed & {*kinds, *orders}:
            faults.append(f"the texts of {question.name} say “{word[0]}”, and no guard says so")
    return faults


def _name_order(alike: Iterable[str]) -> str:
    return "alike" if alike else "ordered"
