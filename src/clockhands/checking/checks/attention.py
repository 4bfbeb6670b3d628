"""Every declared implementation of attention gives the same answer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clockhands.checking.registry import Effect, Inapplicable, check, difference, largest
from clockhands.checking.subject import Subject


@check(
    "attention.sdpa",
    "eager and sdpa give the same logits, padded or not.",
    "a bias or a mask that only one of them applies",
    huggingface=True,
)
def sdpa(subject: Subject) -> Effect:
    """An unpadded, a right-padded and a left-padded batch."""
    if not getattr(subject.module, "_supports_sdpa", False):
        raise Inapplicable("the model declares no support for sdpa")
    return _against_eager(subject, "sdpa")


@check(
    "attention.flex",
    "eager and flex attention give the same logits, padded or not.",
    "a bias or a mask that only one of them applies",
    huggingface=True,
    optional=True,
    precise=False,
)
def flex(subject: Subject) -> Effect:
    """As above, compiled: slow."""
    if not getattr(subject.module, "_supports_flex_attn", False):
        raise Inapplicable("the model declares no support for flex attention")
    return _against_eager(subject, "flex_attention")


def _against_eager(subject: Subject, other: str) -> Effect:
    module: Any = subject.module
    kept = module.config._attn_implementation
    ids = subject.tokens(2, 24)
    masks = _masks(ids) if subject.takes("mask") else {"no padding": None}
    effects = []
    try:
        for label, mask in masks.items():
            found = [_by(subject, name, ids, mask) for name in ("eager", other)]
            real = mask if mask is not None and subject.aligned else slice(None)
            effects.append(Effect(difference(found[1][real], found[0][real]), label))
    finally:
        module.set_attn_implementation(kept)
    return largest(*effects)


def _by(subject: Subject, name: str, ids: Tensor, mask: Tensor | None) -> Tensor:
    subject.module.set_attn_implementation(name)  # type: ignore[union-attr, operator]
    return subject.logits(ids, mask)


def _masks(ids: Tensor) -> dict[str, Tensor | None]:
    right, left = (torch.ones(ids.shape, dtype=torch.bool, device=ids.device) for _ in range(2))
    right[0, -6:] = False
    left[0, :6] = False
    return {"no padding": None, "pads on the right": right, "pads on the left": left}
