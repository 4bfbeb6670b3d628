"""Measure a law on a subject, judge what was measured, and say what is safe instead, or what a scheme declares."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from clockhands.checking.checks.check import TOLERANCE, Check, Inapplicable, Measurement, NotANumber, difference
from clockhands.checking.fitting.causes import explain_check
from clockhands.checking.models.adapter import describe_raised
from clockhands.checking.models.subject import Subject
from clockhands.checking.runtimes.naming import name_fault
from clockhands.checking.runtimes.program import Program
from clockhands.checking.verdict.known_faults import find_fault
from clockhands.checking.verdict.outcome import Outcome, VerdictName
from clockhands.checking.verdict.properties import find_property
from clockhands.progress import CountProgress, ignore_count, without_bars

_AUDIBLE = "with weights drawn so that position is audible"
FAR = 0.1  # a hundred times the tolerance


@dataclass(frozen=True)
class Evidence:
    """What was measured of one check.

    ``inapplicable`` says why the check does not apply, ``raised`` what the model raised, or where its logits are not
    finite; otherwise there is a ``first`` measurement. Where that was not as expected, it was ``repeated`` with other
    weights or texts, in the precision ``repeated_in``, or ``unconfirmed`` says why that was impossible. Where a large
    difference was gone in the repetition, it was measured ``again`` exactly as at first.
    """

    inapplicable: str = ""
    raised: str = ""
    first: Measurement | None = None
    repeated: Measurement | None = None
    repeated_in: torch.dtype = torch.float64
    unconfirmed: str = ""
    again: Measurement | None = None


def measure(subject: Subject, check: Check) -> Evidence:
    """Return what the check measures on the subject, repeated if it is not what a correct model gives."""
    reason = check.inapplicable(subject)
    if reason is not None:
        return Evidence(inapplicable=reason)
    try:
        first = _with_noise(subject, check.measure(subject.copy_untouched()))
    except (Inapplicable, NotImplementedError) as fault:
        return Evidence(inapplicable=str(fault) or "not implemented by the model")
    except NotANumber as fault:
        return Evidence(raised=str(fault))
    except Exception as fault:  # a model may raise anything; the sweep goes on
        return Evidence(raised=f"raised {describe_raised(fault)}")
    # With small initial weights a fault stays below any tolerance, and what must have an effect may seem to have none.
    if subject.redraw is not None and (first.expected or first.wanted):
        louder = first
        with contextlib.suppress(Exception):  # the weights are not those that the author draws
            louder = check.measure(subject.copy_audible(subject.seed, subject.dtype))
        if louder.size < float("inf") and louder.expected != first.expected:
            subject = subject.copy_audible(subject.seed, subject.dtype)
            first = replace(louder, note=", ".join(filter(None, (louder.note, _AUDIBLE))))
    return Evidence(first=first) if first.expected else _confirm(subject, check, first)


def _with_noise(subject: Subject, measured: Measurement) -> Measurement:
    """Return a measurement as a program is held to it: what its own arithmetic does breaks no law, up to a bound.

    A measurement with a tolerance of its own is not forgiven more.
    """
    noise, tolerance = getattr(subject.adapter, "noise", 0.0), getattr(subject.adapter, "tolerance", TOLERANCE)
    if tolerance <= measured.tolerance or measured.tolerance != TOLERANCE:
        return measured
    return replace(measured, tolerance=tolerance, floor=noise)


def _confirm(subject: Subject, check: Check, first: Measurement) -> Evidence:
    """Repeat with another seed, in float64 where that has a meaning: what is rounding, or a tie, is gone there.

    Some layers have no float64. The second seed in the subject's own precision then decides, if both differences are
    far from the tolerance.
    """
    other, dtype = subject.seed + 1, torch.float64 if check.precise else subject.dtype
    repeated = _repeat(subject, check, other, dtype)
    if not isinstance(repeated, str):
        vanished = repeated.expected and first.size > FAR and not first.wanted
        same = _repeat(subject, check, subject.seed, subject.dtype) if vanished else None
        again = same if isinstance(same, Measurement) else None
        return Evidence(first=first, repeated=repeated, repeated_in=dtype, again=again)
    in_own = _repeat(subject, check, other, subject.dtype)
    if isinstance(in_own, str) or (min(first.size, in_own.size) < FAR and not first.wanted):
        return Evidence(first=first, unconfirmed=repeated)
    return Evidence(first=first, repeated=in_own, repeated_in=subject.dtype)


def _repeat(subject: Subject, check: Check, seed: int, dtype: torch.dtype) -> Measurement | str:
    """Return the measurement on an untouched copy with the weights or texts of a seed, or why it cannot be had."""
    try:
        return _with_noise(subject, check.measure(subject.copy_model(seed, dtype)))
    except NotANumber as fault:
        return str(fault)
    except Exception as fault:  # as above
        return describe_raised(fault)


def _measure_rounding(subject: Subject) -> float | None:
    """Return how far rounding in the subject's own precision moves the logits of one text; None without float64."""
    try:
        exact = subject.copy_model(subject.seed, torch.float64)
        ids = subject.tokens(1, 20)
        return difference(subject.copy_untouched().logits(ids), exact.logits(ids))
    except Exception:  # as above
        return None


_FOLLOWS = {"packing.mask": "packing.positions", "packing.cache": "packing.positions"}
"""Checks that say nothing of their own where another does not pass."""


def follows_another(check: str, outcomes: Mapping[str, Outcome]) -> bool:
    """Return whether a check that this one depends on did not pass: it then has no cause of its own."""
    leader = outcomes.get(_FOLLOWS.get(check, ""))
    return leader is not None and leader.verdict != "PASS"


def advise(outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    """Return the outcomes of one subject, by check, with the safe use filled in where it is known. Verdicts stay."""

    def find_safe(name: str) -> str:
        for alternative, advice in _ALTERNATIVES.get(name, ()):
            if alternative in outcomes and outcomes[alternative].verdict == "PASS":
                return advice
        return ""

    advised = []
    for name, outcome in outcomes.items():
        if outcome.verdict not in ("PASS", "N/A") and outcome.size is not None and follows_another(name, outcomes):
            reason = "documents are not told apart, with or without it"
            outcome = replace(outcome, reason=reason, safe=find_safe(_FOLLOWS[name]))
        elif outcome.verdict == "FAIL" and not outcome.safe:
            outcome = replace(outcome, safe=find_safe(name))
        advised.append(outcome)
    return advised


_ALTERNATIVES: dict[str, tuple[tuple[str, str], ...]] = {
    "packing.positions": (("packing.block_mask", "pass a four-dimensional block mask"),),
    "packing.gaps": (("cache.steps", "pass use_cache=True, or a four-dimensional mask"),),
    "precision.to": (("precision.load", "load with from_pretrained(dtype=torch.bfloat16)"),),
    "padding.left.mask": (
        ("padding.left.positions", "pass position_ids made from the mask"),
        ("padding.right", "pad on the right"),
    ),
    "padding.left.positions": (("padding.left.mask", "pass the mask alone"), ("padding.right", "pad on the right")),
    "generate.left_padded": (("padding.right", "generate row by row"),),
    "generate.resume": (("generate.forward", "generate again from the whole text"),),
    "cache.chunks": (("cache.steps", "continue one token at a time"),),
    "cache.steps": (("causal.prefix", "read the whole text again at every step (use_cache=False)"),),
    "attention.sdpa": (("cache.steps", "keep the default implementation that the model was trained with"),),
}


def judge(subject: Subject, check: Check, architecture: str, earlier: Mapping[str, Outcome]) -> Outcome:
    """Return the outcome of one check on one subject. Every verdict is made here.

    - N/A: the check does not apply. FAIL: the model raised on valid input. WARN: a difference cannot be confirmed, or
      the model refused what it need not offer.
    - FAIL too where the logits are not finite, which is no difference but damage.
    - PASS: the measurement is that of a correct model, at once or when it is repeated with another seed, in float64
      where that has a meaning. A large difference that is gone then is WARN: it depends on what ran before, or on a
      choice that rounding decides.
    - PROPERTY or WARN: the difference is one that the scheme declares. FAIL: any other.
    - If undoing one fitted change makes the difference of a FAIL vanish, that change is its cause. A known fault of
      ``architecture`` (a name of transformers) adds its own, and may change the verdict, as the outcome then tells.

    ``earlier`` are the outcomes of the checks before this one, by name without the side.
    """
    evidence, reason, safe = measure(subject, check), "", ""
    verdict: VerdictName = "FAIL"
    if evidence.inapplicable:
        verdict, reason = "N/A", evidence.inapplicable
    elif evidence.raised:
        verdict, reason = "WARN" if check.refusable else "FAIL", evidence.raised
    elif evidence.unconfirmed:
        verdict, reason = "WARN", f"not confirmed in float64: {evidence.unconfirmed}"
    elif evidence.repeated is None:
        verdict, reason = "PASS", "" if evidence.first is None else evidence.first.remark
    elif evidence.first is not None and evidence.repeated.expected:
        verdict, reason = _judge_vanished(subject, evidence.first, evidence)
    elif (rule := find_property(check.name, subject)) is not None:
        verdict, reason, safe = rule.verdict, rule.reason, rule.safe
    numbers: dict[str, Any] = {}
    if evidence.first is not None:
        numbers = {name: getattr(evidence.first, name) for name in ("size", "note", "floor", "tokens")}
        numbers["confirmed"] = None if evidence.repeated is None else evidence.repeated.size
    outcome = Outcome(check.name, verdict, reason=reason, safe=safe, **numbers)
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
    changed, floor = entry.verdict not in (None, verdict), None
    if entry.verdict == "LIBRARY":
        floor = _measure_rounding(subject) if outcome.floor is None else outcome.floor
    return replace(
        outcome,
        verdict=entry.verdict or verdict,
        measured=verdict if changed else "",
        floor=floor,
        known=entry.name,
        reason=entry.cause if entry.verdict else reason,
        cause=entry.cause,
        where=where,
        safe=entry.safe or safe,
        thread=entry.thread,
    )


def _judge_vanished(subject: Subject, first: Measurement, evidence: Evidence) -> tuple[VerdictName, str]:
    """Return the verdict on a difference that was gone when it was repeated, and why.

    A program has no float64: what is gone with other texts is rounding if it was small.
    """
    if isinstance(subject.adapter, Program):
        return "WARN" if first.size > FAR else "PASS", "gone with other texts"
    seen = f"gone in {str(evidence.repeated_in).removeprefix('torch.')} with other weights or texts"
    if first.wanted or first.size <= FAR:
        return "PASS", f"{seen}: rounding, or a tie"
    if evidence.again is not None and evidence.again.expected:
        return "WARN", "depends on what ran before: gone when the same model was asked the same again"
    return "WARN", f"{seen}: rounding decides a choice that moves the logits far"


def run_checks(
    subject: Subject, checks: Collection[Check], architecture: str = "", progress: CountProgress = ignore_count
) -> list[Outcome]:
    """Return the outcome of every check on the subject, with causes and what is safe instead.

    ``architecture`` is the name of transformers by which known faults are found; ``progress`` is told how many checks
    are done. What a model prints or warns of is dropped.
    """
    outcomes: dict[str, Outcome] = {}
    for check in checks:
        started = time.perf_counter()
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), without_bars():
            warnings.simplefilter("ignore")
            outcome = judge(subject, check, architecture, outcomes)
        seconds = round(time.perf_counter() - started, 3)
        outcomes[check.name] = replace(outcome, seconds=seconds)
        progress(f"{subject.side}checks of {architecture or subject.name}", len(outcomes), len(checks))
    return [replace(outcome, check=subject.side + outcome.check) for outcome in advise(outcomes)]
