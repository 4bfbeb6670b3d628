"""What one check says of one model, as data and in words for the terminal and a page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from clockhands.checking.checks.check import TOLERANCE

VerdictName = Literal["PASS", "FAIL", "WARN", "LIBRARY", "PROPERTY", "N/A"]


@dataclass(frozen=True)
class Outcome:
    """The verdict of one check on one subject.

    ``size`` is the effect in standard deviations of the logits in float32, ``confirmed`` the same repeated with other
    weights (or other texts, for a real checkpoint), in float64 where that has a meaning. ``reason`` says why it is not
    a plain PASS or FAIL; ``cause`` and ``where`` (``file.py:line``) what in the library makes it so, ``thread`` where
    that is discussed.
    LIBRARY is a failure whose cause lies in code that many models share; ``floor`` is then what the precision in which
    it shows does by itself, in the same unit.
    ``measured`` is the verdict of the measurement where the known fault ``known`` changed it, and empty otherwise.
    ``tokens`` is the length up to which a law about length was tried.
    """

    check: str
    verdict: VerdictName
    size: float | None = None
    confirmed: float | None = None
    note: str = ""
    reason: str = ""
    safe: str = ""
    cause: str = ""
    where: str = ""
    thread: str = ""
    seconds: float = 0.0
    measured: VerdictName | Literal[""] = ""
    known: str = ""
    floor: float | None = None
    tokens: int | None = None

    @property
    def change(self) -> str:
        """How a known fault changed the verdict, in words; empty if none did, and of LIBRARY, which says it itself."""
        if not self.measured or self.verdict == "LIBRARY":
            return ""
        thread = f", thread {self.thread}" if self.thread else ""
        return f"{self.measured} -> {self.verdict}: known fault {self.known} of the library{thread}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


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
