"""What is safe instead of a use that failed: another use of the same purpose that passed on the same model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from clockhands.checking.verdict.outcome import Outcome

_FOLLOWS = {"packing.mask": "packing.positions", "packing.cache": "packing.positions"}
"""Checks that say nothing of their own where another does not pass."""


def follows_another(check: str, outcomes: Mapping[str, Outcome]) -> bool:
    """Return whether a check that this one depends on did not pass: it then has no cause of its own."""
    leader = outcomes.get(_FOLLOWS.get(check, ""))
    return leader is not None and leader.verdict != "PASS"


def advise(outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    """Return the outcomes of one subject, by check, with the safe use filled in where it is known. Verdicts stay."""
    return [_advised(name, outcome, outcomes) for name, outcome in outcomes.items()]


def _advised(name: str, outcome: Outcome, outcomes: Mapping[str, Outcome]) -> Outcome:
    if outcome.verdict in ("PASS", "N/A"):
        return outcome
    if outcome.size is not None and follows_another(name, outcomes):
        safe = _safe(_FOLLOWS[name], outcomes)
        return replace(outcome, reason="documents are not told apart, with or without it", safe=safe)
    if outcome.verdict != "FAIL" or outcome.safe:
        return outcome
    return replace(outcome, safe=_safe(name, outcomes))


def _safe(name: str, outcomes: Mapping[str, Outcome]) -> str:
    for alternative, advice in _ALTERNATIVES.get(name, ()):
        if alternative in outcomes and outcomes[alternative].verdict == "PASS":
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
