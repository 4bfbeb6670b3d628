"""Outcome: what one check says of one model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["PASS", "FAIL", "WARN", "LIBRARY", "PROPERTY", "N/A"]


@dataclass(frozen=True)
class Outcome:
    """The verdict of one check on one subject.

    ``size`` is the effect in standard deviations of the logits in float32, ``confirmed`` the same in float64 with
    other weights (or other texts, for a real checkpoint). ``reason`` says why it is not a plain PASS or FAIL; ``cause``
    and ``where`` (``file.py:line``) what in the library makes it so, ``thread`` where that is discussed.
    LIBRARY is a failure whose cause lies in code that many models share; ``floor`` is then what the precision in which
    it shows does by itself, in the same unit.
    ``measured`` is the verdict of the measurement where the known fault ``known`` changed it, and empty otherwise.
    ``tokens`` is the length up to which a law about length was tried.
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
    measured: Verdict | Literal[""] = ""
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
