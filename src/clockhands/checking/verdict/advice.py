"""The cause of a failure where it is known, by file and line, and what is safe instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from clockhands.checking.models.subject import Subject
from clockhands.checking.verdict.evidence import EVIDENCE
from clockhands.checking.verdict.judge import Outcome
from clockhands.checking.verdict.known_faults import Known, fitting


def explain(subject: Subject, outcomes: Sequence[Outcome], architecture: str) -> list[Outcome]:
    """The same outcomes with cause and safe use filled in, known faults recognised, declared limits set apart."""
    verdicts = {outcome.check.removeprefix(subject.side): outcome.verdict for outcome in outcomes}
    return [_explained(subject, outcome, verdicts, architecture) for outcome in outcomes]


def _explained(subject: Subject, outcome: Outcome, verdicts: Mapping[str, str], architecture: str) -> Outcome:
    if outcome.verdict not in ("FAIL", "WARN", "PROPERTY"):
        return outcome
    name = outcome.check.removeprefix(subject.side)
    if name in ("packing.mask", "packing.cache") and verdicts.get("packing.positions", "PASS") != "PASS":
        safe = _safe("packing.positions", verdicts)
        return replace(outcome, reason="documents are not told apart, with or without it", safe=safe)
    recognised = _recognised(subject, outcome, name, architecture)
    if recognised.verdict != "FAIL" or recognised.safe:
        return recognised
    return replace(recognised, safe=_safe(name, verdicts))


def _recognised(subject: Subject, outcome: Outcome, name: str, architecture: str) -> Outcome:
    """With the first entry that fits and, where it asks for evidence, is borne out by the model."""
    for known in fitting(architecture, name):
        if not known.evidence:
            return _with(outcome, known, known.places(architecture))
        if outcome.verdict != "FAIL":
            continue
        shown = EVIDENCE[known.evidence](subject)
        if shown is not None:
            return _with(outcome, known, tuple(filter(None, (shown, *known.places(architecture)))))
    return outcome


def _with(outcome: Outcome, known: Known, places: Sequence[str]) -> Outcome:
    return replace(
        outcome,
        verdict=known.verdict or outcome.verdict,
        reason=known.cause if known.verdict else outcome.reason,
        cause=known.cause,
        where=", ".join(places),
        safe=known.safe or outcome.safe,
        thread=known.thread,
    )


def _safe(name: str, verdicts: Mapping[str, str]) -> str:
    """Another use of the same purpose that passed here."""
    for alternative, advice in _ALTERNATIVES.get(name, ()):
        if verdicts.get(alternative) == "PASS":
            return advice
    return ""


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
