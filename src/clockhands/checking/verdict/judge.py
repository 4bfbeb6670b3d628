"""The judge: the one place where a verdict is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from clockhands.checking.checks.check import Check, Measurement
from clockhands.checking.fitting.causes import explain_check
from clockhands.checking.models.subject import Subject
from clockhands.checking.runtimes.naming import name_fault
from clockhands.checking.runtimes.program import Program
from clockhands.checking.verdict.advice import follows_another
from clockhands.checking.verdict.known_faults import find_fault
from clockhands.checking.verdict.measure import FAR, measure, measure_rounding
from clockhands.checking.verdict.outcome import Outcome, Verdict
from clockhands.checking.verdict.properties import find_property


def judge(subject: Subject, check: Check, architecture: str, earlier: Mapping[str, Outcome]) -> Outcome:
    """Return the outcome of one check on one subject. Every verdict is made here.

    - N/A: the check does not apply. FAIL: the model raised on valid input. WARN: a difference cannot be confirmed, or
      the model refused what it need not offer.
    - FAIL too where the logits are not finite, which is no difference but damage.
    - PASS: the measurement is that of a correct model, at once or when it is repeated in float64. A large difference
      that is gone then is WARN: it depends on what ran before, or on a choice that rounding decides.
    - PROPERTY or WARN: the difference is one that the scheme declares. FAIL: any other.
    - A FAIL gets as its cause what was fitted and, undone, takes the difference away.
    - A known fault of ``architecture`` (a name of transformers) adds its cause. It may change the verdict, and the
      outcome then tells from which: LIBRARY is a fault of code that many models share.

    ``earlier`` are the outcomes of the checks before this one, by name without the side.
    """
    evidence, reason, safe = measure(subject, check), "", ""
    verdict: Verdict = "FAIL"
    if evidence.inapplicable:
        verdict, reason = "N/A", evidence.inapplicable
    elif evidence.raised:
        verdict, reason = "WARN" if check.refusable else "FAIL", evidence.raised
    elif evidence.unconfirmed:
        verdict, reason = "WARN", f"not confirmed in float64: {evidence.unconfirmed}"
    elif evidence.repeated is None:
        verdict, reason = "PASS", "" if evidence.first is None else evidence.first.remark
    elif evidence.first is not None and evidence.repeated.expected:
        verdict, reason = _judge_vanished(subject, evidence.first, evidence.again)
    elif (rule := find_property(check.name, subject)) is not None:
        verdict, reason, safe = rule.verdict, rule.reason, rule.safe
    outcome = Outcome(check.name, verdict, reason=reason, safe=safe, **evidence.numbers())
    follows = not evidence.raised and follows_another(check.name, earlier)
    fault = None if verdict in ("PASS", "N/A") or follows else find_fault(subject, outcome, architecture)
    if fault is None:
        if verdict != "FAIL":
            return outcome
        if isinstance(subject.adapter, Program):
            cause = name_fault(subject, check.name)
            return replace(outcome, verdict="LIBRARY" if check.shared else "FAIL", cause=cause)
        return replace(outcome, cause="" if evidence.raised else explain_check(subject, check.name))
    entry, where = fault
    changed = entry.verdict not in (None, verdict)
    return replace(
        outcome,
        verdict=entry.verdict or verdict,
        measured=verdict if changed else "",
        floor=_floor(subject, outcome) if entry.verdict == "LIBRARY" else None,
        known=entry.name,
        reason=entry.cause if entry.verdict else reason,
        cause=entry.cause,
        where=where,
        safe=entry.safe or safe,
        thread=entry.thread,
    )


def _floor(subject: Subject, outcome: Outcome) -> float | None:
    return outcome.floor if outcome.floor is not None else measure_rounding(subject)


def _judge_vanished(subject: Subject, first: Measurement, again: Measurement | None) -> tuple[Verdict, str]:
    """Return the verdict on a difference that was gone when it was repeated, and why.

    A program has no float64: what is gone with other texts is rounding if it was small.
    """
    if isinstance(subject.adapter, Program):
        return "WARN" if first.size > FAR else "PASS", "gone with other texts"
    if first.wanted or first.size <= FAR:
        return "PASS", "vanishes in float64: rounding, or a tie"
    if again is not None and again.expected:
        return "WARN", "depends on what ran before: gone when the same model was asked the same again"
    return "WARN", "gone in float64 with other weights or texts: rounding decides a choice that moves the logits far"
