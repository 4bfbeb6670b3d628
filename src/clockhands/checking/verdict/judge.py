"""Run checks on a subject and judge them honestly."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from clockhands.checking.checks.check import CHECKS, Check, Effect, Inapplicable
from clockhands.checking.models.subject import Subject
from clockhands.checking.verdict.properties import declared
from clockhands.errors import UsageError, unknown
from clockhands.quiet import without_bars

_FAR = 0.1  # a hundred times the tolerance
Verdict = Literal["PASS", "FAIL", "WARN", "PROPERTY", "N/A"]


@dataclass(frozen=True)
class Outcome:
    """The verdict of one check on one subject.

    ``size`` is the effect in standard deviations of the logits in float32, ``confirmed`` the same in float64 with
    other weights (or other texts, for a real checkpoint). ``reason`` says why it is not a plain PASS or FAIL; ``cause``
    and ``where`` (``file.py:line``) what in the library makes it so, ``thread`` where that is discussed.
    """

    check: str
    verdict: Verdict
    size: float | None = None
    confirmed: float | None = None
    note: str = ""
    reason: str = ""
    safe: str = ""
    cause: str = ""
    where: str = ""
    thread: str = ""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def select(only: Iterable[str] | None = None, optional: bool = False) -> list[Check]:
    """The checks whose name starts with one of ``only``; all that are not opt-in by default.

    Raises UsageError for a word that no check starts with.
    """
    if only is None:
        return [each for each in CHECKS.values() if optional or not each.optional]
    wanted = list(only)
    groups = {name.partition(".")[0] for name in CHECKS}
    for word in wanted:
        if not any(name == word or name.startswith(f"{word}.") for name in CHECKS):
            raise UsageError(unknown("check", word, groups | set(CHECKS)))
    return [c for c in CHECKS.values() if any(c.name == w or c.name.startswith(f"{w}.") for w in wanted)]


def run(subject: Subject, checks: Iterable[Check], tell: Callable[[Outcome], None] | None = None) -> list[Outcome]:
    """Every check on the subject, one after another; ``tell`` hears each as it comes."""
    outcomes = []
    for outcome in _each(subject, checks):
        outcomes.append(outcome)
        if tell is not None:
            tell(outcome)
    return outcomes


def _each(subject: Subject, checks: Iterable[Check]) -> Iterator[Outcome]:
    for each in checks:
        started = time.perf_counter()
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), without_bars():
            warnings.simplefilter("ignore")
            outcome = judge(subject, each)
        fields = {**outcome.as_dict(), "seconds": round(time.perf_counter() - started, 3)}
        yield Outcome(**{**fields, "check": f"{subject.side}{each.name}"})


def judge(subject: Subject, each: Check) -> Outcome:
    """One check: measured, repeated before it is held against the model, and explained where it can be."""
    reason = each.inapplicable(subject)
    if reason is not None:
        return Outcome(each.name, "N/A", reason=reason)
    try:
        effect = each.measure(subject)
    except (Inapplicable, NotImplementedError) as fault:
        return Outcome(each.name, "N/A", reason=str(fault) or "not implemented by the model")
    except Exception as fault:  # a model may raise anything; the sweep goes on
        return Outcome(each.name, "WARN", reason=f"raised {_short(fault)}")
    if effect.ok:
        return Outcome(each.name, "PASS", effect.size, note=effect.note)
    return _flagged(subject, each, effect)


def _flagged(subject: Subject, each: Check, effect: Effect) -> Outcome:
    """A difference that should not be: a property, a fault, or an accident of rounding."""
    again = _repeat(subject, each, torch.float64 if each.precise else subject.dtype)
    if isinstance(again, str):  # some layers have no float64: the second seed must then be far from the tolerance
        why, again = again, _repeat(subject, each, subject.dtype)
        if isinstance(again, str) or (min(effect.size, again.size) < _FAR and not effect.wanted):
            return Outcome(each.name, "WARN", effect.size, None, effect.note, f"not confirmed in float64: {why}")
    size = again.size
    if again.ok:
        return Outcome(each.name, "PASS", effect.size, size, effect.note, "vanishes in float64: rounding, or a tie")
    found = declared(each.name, subject)
    if found is not None:
        return Outcome(each.name, found.verdict, effect.size, size, effect.note, found.reason, found.safe)
    return Outcome(each.name, "FAIL", effect.size, size, effect.note)


def _repeat(subject: Subject, each: Check, dtype: torch.dtype) -> Effect | str:
    """The measurement with other weights or texts, or why it cannot be had."""
    try:
        effect = each.measure(subject.again(subject.seed + 1, dtype))
        return effect if effect.size < float("inf") else "the logits are not finite"
    except Exception as fault:  # as above
        return _short(fault)


def _short(fault: Exception) -> str:
    text = " ".join(str(fault).split())
    return f"{type(fault).__name__}: {text[:160]}"
