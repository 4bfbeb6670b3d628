"""Every declared implementation of attention gives the same answer."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.copies import copy_sharing, is_large
from clockhands.checking.models.subject import Subject
from clockhands.checking.models.tiny import build_model
from clockhands.models.streaming import find_device, is_streamed


@check(
    "attention.sdpa",
    "eager and sdpa give the same logits, padded or not.",
    "a bias or a mask that only one of them applies",
    huggingface=True,
    uses=("other attention implementations",),
)
def sdpa(subject: Subject) -> Measurement:
    """Compare eager attention and sdpa on an unpadded, a right-padded and a left-padded batch."""
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
    uses=("other attention implementations",),
)
def flex(subject: Subject) -> Measurement:
    """Compare eager and flex attention, which is compiled first, on the same batches."""
    if not getattr(subject.module, "_supports_flex_attn", False):
        raise Inapplicable("the model declares no support for flex attention")
    return _against_eager(subject, "flex_attention")


def _against_eager(subject: Subject, other: str) -> Measurement:
    ids = subject.tokens(2, 24)
    masks = _masks(ids) if subject.takes("mask") else {"no padding": None}
    twins = [_with(subject, name) for name in ("eager", other)]
    effects = []
    for label, mask in masks.items():
        actual = [twin.logits(ids, mask) for twin in twins]
        real = mask if mask is not None and subject.aligned else slice(None)
        effects.append(Measurement(difference(actual[1][real], actual[0][real]), label))
    return largest(*effects)


def _with(subject: Subject, name: str) -> Subject:
    """The same weights under another implementation."""
    module: Any = subject.module
    adapter: Any = subject.adapter
    model = _build_with(adapter, name) if getattr(adapter, "shrunk", False) else copy_sharing(module)
    if model.config._attn_implementation != name:
        model.set_attn_implementation(name)
    if model.config._attn_implementation != name and not is_large(adapter) and not is_streamed(module):
        model = _build_with(adapter, name)  # it chooses its classes when it is built
    if model.config._attn_implementation != name:
        raise Inapplicable(f"the model does not switch to {name}")
    return dataclasses.replace(subject, adapter=type(adapter)(model, adapter.task))


def _build_with(adapter: Any, name: str) -> Any:
    module = adapter.module
    try:
        model = build_model(module.config, adapter.task, 0, name, type(module)).to(next(module.parameters()).dtype)
    except ValueError as refusal:
        if "does not support an attention implementation" not in str(refusal):
            raise
        raise Inapplicable(f"a part of the model has no {name}: {str(refusal)[:80]}") from refusal
    model.load_state_dict(module.state_dict())
    return model.to(find_device(module))


def _masks(ids: Tensor) -> dict[str, Tensor | None]:
    right, left = (torch.ones(ids.shape, dtype=torch.bool, device=ids.device) for _ in range(2))
    right[0, -6:] = False
    left[0, :6] = False
    return {"no padding": None, "pads on the right": right, "pads on the left": left}
