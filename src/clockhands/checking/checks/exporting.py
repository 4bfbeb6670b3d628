"""Compiled and exported, a model gives the same logits at every length."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.caching import make_static_cache
from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject
from clockhands.models.streaming import is_streamed

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
