"""One outcome in words, for the terminal and for a page."""

from __future__ import annotations

from clockhands.checking.checks.check import TOLERANCE
from clockhands.checking.verdict.outcome import Outcome

_HEADS = {
    "PASS": "It passes",
    "FAIL": "It fails",
    "WARN": "Be careful",
    "LIBRARY": "It fails, by code of its library that many models share",
    "PROPERTY": "A property of the model, and no fault",
    "N/A": "It does not apply",
}
"""How a page begins to tell of a verdict."""


def sentence(outcome: Outcome) -> str:
    """Return one outcome in words: the verdict, its size, the cause and what is safe."""
    size = "" if outcome.size is None else f" {outcome.size:.2g} std"
    return _join(outcome, f"{outcome.verdict}{size}{_compare_with_floor(outcome)}")


def describe(outcome: Outcome) -> str:
    """Return one outcome as a page tells it, where the size stands beside it with all its digits."""
    if outcome.size is None:
        head = _HEADS[outcome.verdict]
        return _join(outcome, head).replace(f"{head}. ", f"{head}: ", 1)
    small = outcome.size <= TOLERANCE
    size = f"at most {TOLERANCE:g}, which rounding alone may do" if small else f"{outcome.size:.2g}"
    if outcome.size == 0:
        size = "exactly 0"
    head = f"{_HEADS[outcome.verdict]}: the effect in standard deviations of the logits is {size}"
    return _join(outcome, head + _compare_with_floor(outcome))


def _compare_with_floor(outcome: Outcome) -> str:
    """Say how often the effect is what its precision does by itself; empty where that is not known."""
    if outcome.size is None or not outcome.floor:
        return ""
    times = float(f"{outcome.size / outcome.floor:.2g}")
    return f", {times:{',.0f' if times >= 10 else 'g'}} times what that precision does by itself"


def _join(outcome: Outcome, head: str) -> str:
    """Return the sentences about an outcome that begin with ``head``: the note, the cause and what is safe."""
    parts = [head + (f" ({outcome.note})" if outcome.note else "")]
    cause = outcome.cause + (f" ({outcome.where})" if outcome.where else "")
    cause = f"{outcome.change}: {cause}" if outcome.change else cause
    reason = outcome.reason if outcome.reason != outcome.cause else ""
    parts += [text for text in (reason, cause) if text and text not in parts[0]]
    thread = "" if outcome.change else outcome.thread  # the change names it
    parts += [f"{name}: {text}" for name, text in (("Safe", outcome.safe), ("Thread", thread)) if text]
    return ". ".join(dict.fromkeys(part.rstrip(".") for part in parts if part)) + "."
