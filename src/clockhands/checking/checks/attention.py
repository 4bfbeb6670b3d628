"""Other attention implementations, compiled and exported models give the same logits."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.caching import make_static_cache
from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject, copy_sharing, is_large
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
    right, left = (torch.ones_like(ids, dtype=torch.bool) for _ in range(2))
    right[0, -6:] = False
    left[0, :6] = False
    return {"no padding": None, "pads on the right": right, "pads on the left": left}


_LENGTHS = (12, 20, 33)


@check(
    "export.compile",
    "torch.compile changes nothing, at any of three lengths.",
    "a length or an offset frozen into the graph",
    needs=("module",),
    huggingface=True,
    optional=True,
    precise=False,
    refusable=True,
    uses=("compile and export",),
)
def compiled(subject: Subject) -> Measurement:
    """Dynamo's capture, run by PyTorch itself: no kernels are generated."""
    adapter: Any = subject.adapter
    twin: Any = type(adapter)(adapter.module, adapter.task)
    twin.module = torch.compile(adapter.module, backend="eager")
    try:
        return _at_every_length(subject, dataclasses.replace(subject, adapter=twin))
    finally:
        torch.compiler.reset()


@check(
    "export.export",
    "torch.export with a free length changes nothing, at any of three lengths.",
    "a length or an offset frozen into the graph",
    causal=True,
    huggingface=True,
    optional=True,
    precise=False,
    refusable=True,
    uses=("compile and export",),
)
def exported(subject: Subject) -> Measurement:
    """Export one program for all lengths, from token ids alone."""
    adapter: Any = subject.adapter
    if is_streamed(adapter.module):
        raise Inapplicable("streamed weights are no part of a program: hold them in memory")
    plain = _IdsToLogits(adapter.module, adapter.inputs)
    length = torch.export.Dim("length", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(plain, (subject.tokens(1, 16),), dynamic_shapes=({1: length},), strict=False)
    module = program.module()
    effects = []
    for size in _LENGTHS:
        ids = subject.tokens(1, size)
        effects.append(Measurement(difference(module(ids), subject.logits(ids)), f"{size} tokens"))
    return largest(*effects)


@check(
    "export.static",
    "Compiled, with a cache of fixed size, single steps equal all at once.",
    "a length of the cache frozen into the graph",
    uses=("compile and export", "static cache"),
    needs=("cache",),
    causal=True,
    huggingface=True,
    optional=True,
    precise=False,
    refusable=True,
)
def static(subject: Subject) -> Measurement:
    """Read a prompt and single tokens into a static cache with the model compiled, as generate() does on a GPU."""
    adapter: Any = subject.adapter
    twin: Any = type(adapter)(adapter.module, adapter.task)
    twin.module = torch.compile(adapter.module, backend="eager")
    ids, cache = subject.tokens(1, 24), twin.new_cache()
    cache.state = make_static_cache(subject)
    other = dataclasses.replace(subject, adapter=twin)
    try:
        actual = [other.logits(ids[:, a:b], cache=cache) for a, b in pairwise([0, 8, *range(9, 25)])]
    finally:
        torch.compiler.reset()
    return Measurement(difference(torch.cat(actual, 1), subject.logits(ids)))


class _IdsToLogits(nn.Module):
    """What is exported: ids in, logits out, no cache."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(**self.inputs(ids), use_cache=False).logits


def _at_every_length(subject: Subject, other: Subject) -> Measurement:
    effects = []
    for size in _LENGTHS:
        ids = subject.tokens(1, size)
        effects.append(Measurement(difference(other.logits(ids), subject.logits(ids)), f"{size} tokens"))
    return largest(*effects)
