"""Other attention implementations, compiled and exported models give the same logits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.caching import make_static_cache
from clockhands.checking.checks.check import (
    Inapplicable,
    Measurement,
    check,
    difference,
    new_cache,
    put_in,
    read_in_pieces,
    refusals,
)
from clockhands.checking.models.subject import Subject, copy_sharing, is_large
from clockhands.checking.models.tiny import build_model
from clockhands.models.streaming import find_device, is_streamed

_LENGTHS = (12, 20, 33)
_BIAS_OF_ONE = "a bias or a mask that only one of them applies"
_FROZEN = "a length or an offset frozen into the graph"
_attention_check = partial(check, huggingface=True, uses=("other attention implementations",))
_export_check = partial(check, huggingface=True, optional=True, precise=False, refusable=True)


@_attention_check("attention.sdpa", _BIAS_OF_ONE)
def _sdpa(subject: Subject) -> Iterator[Measurement]:
    """eager and sdpa give the same logits, padded or not."""
    if not getattr(subject.module, "_supports_sdpa", False):
        raise Inapplicable("the model declares no support for sdpa")
    return _against_eager(subject, "sdpa")


@_attention_check("attention.flex", _BIAS_OF_ONE, optional=True, precise=False)
def _flex(subject: Subject) -> Iterator[Measurement]:
    """eager and flex attention give the same logits, padded or not."""
    if not getattr(subject.module, "_supports_flex_attn", False):
        raise Inapplicable("the model declares no support for flex attention")
    return _against_eager(subject, "flex_attention")


def _against_eager(subject: Subject, other: str) -> Iterator[Measurement]:
    ids = subject.tokens(2, 24)
    masks: dict[str, Tensor | None] = {"no padding": None}
    if subject.takes("mask"):
        for label, pads in (("pads on the right", slice(-6, None)), ("pads on the left", slice(6))):
            padded = torch.ones_like(ids, dtype=torch.bool)
            padded[0, pads] = False
            masks[label] = padded
    twins = [_with_attention(subject, name) for name in ("eager", other)]
    for label, mask in masks.items():
        wanted, actual = [twin.logits(ids, mask) for twin in twins]
        real = mask if mask is not None and subject.aligned else slice(None)
        yield Measurement(difference(actual[real], wanted[real]), label)


def _with_attention(subject: Subject, name: str) -> Subject:
    module: Any = subject.module
    adapter: Any = subject.adapter

    def build() -> Any:
        about = "does not support an attention implementation"
        with refusals(f"a part of the model has no {name}", ValueError, about=about):
            built = build_model(module.config, adapter.task, 0, name, type(module)).to(next(module.parameters()).dtype)
        built.load_state_dict(module.state_dict())
        return built.to(find_device(module))

    model = build() if getattr(adapter, "shrunk", False) else copy_sharing(module)
    if model.config._attn_implementation != name:
        model.set_attn_implementation(name)
    if model.config._attn_implementation != name and not is_large(adapter) and not is_streamed(module):
        model = build()  # it chooses its classes when it is built
    if model.config._attn_implementation != name:
        raise Inapplicable(f"the model does not switch to {name}")
    return put_in(subject, model)


def _compile(subject: Subject) -> Subject:
    """Return the model as Dynamo captures it, run by PyTorch itself: no kernels are generated."""
    adapter: Any = subject.adapter
    twin: Any = type(adapter)(adapter.module, adapter.task)
    twin.module = torch.compile(adapter.module, backend="eager")
    return dataclasses.replace(subject, adapter=twin)


@_export_check("export.compile", _FROZEN, needs=("module",), uses=("compile and export",))
def _compiled(subject: Subject) -> Iterator[Measurement]:
    """torch.compile changes nothing, at any of three lengths."""
    twin = _compile(subject)
    try:
        for size in _LENGTHS:
            ids = subject.tokens(1, size)
            yield Measurement(difference(twin.logits(ids), subject.logits(ids)), f"{size} tokens")
    finally:
        torch.compiler.reset()


@_export_check("export.export", _FROZEN, causal=True, uses=("compile and export",))
def _exported(subject: Subject) -> Iterator[Measurement]:
    """torch.export with a free length changes nothing, at any of three lengths.

    One program for all lengths is exported, from token ids alone.
    """
    adapter: Any = subject.adapter
    if is_streamed(adapter.module):
        raise Inapplicable("streamed weights are no part of a program: hold them in memory")
    plain = _IdsToLogits(adapter.module, adapter.inputs)
    length = torch.export.Dim("length", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(plain, (subject.tokens(1, 16),), dynamic_shapes=({1: length},), strict=False)
    module = program.module()
    for size in _LENGTHS:
        ids = subject.tokens(1, size)
        yield Measurement(difference(module(ids), subject.logits(ids)), f"{size} tokens")


@_export_check(
    "export.static",
    "a length of the cache frozen into the graph",
    needs=("cache",),
    causal=True,
    uses=("compile and export", "static cache"),
)
def _static(subject: Subject) -> Measurement:
    """Compiled, with a cache of fixed size, single steps equal all at once.

    This is how generate() reads on a GPU.
    """
    twin, ids = _compile(subject), subject.tokens(1, 24)
    cache = new_cache(twin)
    cache.state = make_static_cache(subject)
    try:
        actual = read_in_pieces(twin, ids, range(8, 25), cache=cache)
    finally:
        torch.compiler.reset()
    return Measurement(difference(actual, subject.logits(ids)))


class _IdsToLogits(nn.Module):
    """What is exported: ids in, logits out, no cache."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(**self.inputs(ids), use_cache=False).logits
