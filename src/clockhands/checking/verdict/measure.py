"""Measure a law on a subject, and again where the first result is not a correct model's. No verdict is made here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from clockhands.checking.checks.check import TOLERANCE, Check, Inapplicable, Measurement, NotANumber, difference
from clockhands.checking.models.subject import Subject

_AUDIBLE = "with weights drawn so that position is audible"
FAR = 0.1  # a hundred times the tolerance


@dataclass(frozen=True)
class Evidence:
    """What was measured of one check.

    ``inapplicable`` says why the check does not apply, ``raised`` what the model raised, or where
    its logits are not finite; otherwise there is a ``first``
    measurement. Where that was not as expected, it was ``repeated`` in float64 with other weights or texts, or
    ``unconfirmed`` says why that was impossible. Where a large difference was gone in the repetition, it was measured
    ``again`` exactly as at first.
    """

    inapplicable: str = ""
    raised: str = ""
    first: Measurement | None = None
    repeated: Measurement | None = None
    unconfirmed: str = ""
    again: Measurement | None = None

    def numbers(self) -> dict[str, Any]:
        """Return ``size``, ``confirmed`` and ``note`` of an outcome, as far as they were measured."""
        if self.first is None:
            return {}
        confirmed = None if self.repeated is None else self.repeated.size
        first = self.first
        numbers = {"size": first.size, "note": first.note, "floor": first.floor, "tokens": first.tokens}
        return {**numbers, "confirmed": confirmed}


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
        return Evidence(raised=f"raised {_shorten(fault)}")
    louder = _measure_audible(subject, check)
    if louder is not None and (first.expected or first.wanted) and louder.expected != first.expected:
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


def _measure_audible(subject: Subject, check: Check) -> Measurement | None:
    """Return the measurement with weights in which position is audible; None where they are, or cannot be.

    With small initial weights a fault stays below any tolerance, and what must have an effect may seem to have none.
    """
    if subject.redraw is None:
        return None
    try:
        louder = check.measure(subject.copy_audible(subject.seed, subject.dtype))
    except Exception:  # the weights are not those that the author draws
        return None
    return louder if louder.size < float("inf") else None


def _confirm(subject: Subject, check: Check, first: Measurement) -> Evidence:
    """Repeat in float64: what is rounding, or a tie, is gone there.

    Some layers have no float64. The second seed in the subject's own precision then decides, if both differences are
    far from the tolerance.
    """
    other = subject.seed + 1
    repeated = _repeat(subject, check, other, torch.float64 if check.precise else subject.dtype)
    if not isinstance(repeated, str):
        vanished = repeated.expected and first.size > FAR and not first.wanted
        again = _repeat(subject, check, subject.seed, subject.dtype) if vanished else None
        return Evidence(first=first, repeated=repeated, again=again if isinstance(again, Measurement) else None)
    why, again = repeated, _repeat(subject, check, other, subject.dtype)
    if isinstance(again, str) or (min(first.size, again.size) < FAR and not first.wanted):
        return Evidence(first=first, unconfirmed=why)
    return Evidence(first=first, repeated=again)


def _repeat(subject: Subject, check: Check, seed: int, dtype: torch.dtype) -> Measurement | str:
    """Return the measurement on an untouched copy with the weights or texts of a seed, or why it cannot be had."""
    try:
        return _with_noise(subject, check.measure(subject.copy_model(seed, dtype)))
    except NotANumber as fault:
        return str(fault)
    except Exception as fault:  # as above
        return _shorten(fault)


def measure_rounding(subject: Subject) -> float | None:
    """Return how far rounding in the subject's own precision moves the logits of one text; None without float64."""
    try:
        exact = subject.copy_model(subject.seed, torch.float64)
        ids = subject.tokens(1, 20)
        return difference(subject.copy_untouched().logits(ids), exact.logits(ids))
    except Exception:  # as above
        return None


def _shorten(fault: Exception) -> str:
    text = " ".join(str(fault).split())
    return f"{type(fault).__name__}: {text[:160]}"
