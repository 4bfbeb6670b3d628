"""Up to the claimed length everything works; beyond it the model says so or carries on."""

from __future__ import annotations

import copy
import re
from typing import Any

from clockhands.checking.builds import build_model
from clockhands.checking.registry import Effect, Inapplicable, check
from clockhands.checking.subject import Subject

_CLEAR = re.compile(r"length|position|maximum|too long|exceed|longer", re.IGNORECASE)
_LARGEST = 2048


@check("length.claimed", "The model reads a text as long as it claims.", "a table shorter than the claim")
def claimed(subject: Subject) -> Effect:
    """max_position_embeddings tokens."""
    limit = _limit(subject)
    fault = _reading(subject, limit)
    return Effect(float(fault is not None), f"{limit} tokens: {fault}" if fault else f"{limit} tokens")


@check(
    "length.beyond",
    "Beyond the claimed length the model runs on, or refuses with a message that says why.",
    "an index error far from its cause",
)
def beyond(subject: Subject) -> Effect:
    """Eight tokens more than claimed."""
    limit = _limit(subject) + 8
    fault = _reading(subject, limit)
    if fault is None:
        return Effect(0.0, f"{limit} tokens: runs on")
    clear = bool(_CLEAR.search(fault))
    return Effect(float(not clear), f"{limit} tokens: refused with '{fault}'")


@check(
    "size.odd",
    "An odd head size works, or is refused with a message that says why.",
    "a rotation one column short",
    huggingface=True,
)
def odd(subject: Subject) -> Effect:
    """head_dim 15 in place of 16."""
    module: Any = subject.module
    if not getattr(subject.adapter, "shrunk", False):
        raise Inapplicable("rebuilds the model: only with --tiny")
    raw = copy.deepcopy(module.config.to_dict())
    if not isinstance(raw.get("head_dim"), int) or "RoPE" not in subject.facts.scheme:
        raise Inapplicable("no head_dim to set, or nothing rotated")
    raw["head_dim"] = 15
    try:
        model = build_model(type(module.config).from_dict(raw), subject.adapter.kind, cls=type(module))  # type: ignore
        type(subject.adapter)(model, subject.adapter.kind).logits(subject.tokens(1, 8))  # type: ignore
    except Exception as fault:  # whatever is raised is what is judged
        message = " ".join(str(fault).split())[:120]
        clear = bool(re.search(r"\b(odd|even|divisible|head_dim|multiple)\b", message))
        return Effect(float(not clear), f"refused with '{message}'")
    return Effect(0.0, "works")


def _limit(subject: Subject) -> int:
    limit = subject.facts.limit
    if limit is None:
        raise Inapplicable("the model claims no length")
    if limit > _LARGEST:
        raise Inapplicable(f"{limit} tokens are too many to try here")
    return limit


def _reading(subject: Subject, length: int) -> str | None:
    """What is raised when a text of that length is read, on a fresh copy; None if nothing."""
    twin = subject.again(subject.seed, subject.dtype) if subject.module else subject
    try:
        twin.logits(twin.tokens(1, length))
    except Exception as fault:  # whatever is raised is what is judged
        return " ".join(str(fault).split())[:120] or type(fault).__name__
    return None
