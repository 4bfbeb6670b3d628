"""One attention layer, kept so that it can be run again alone: on its recorded input, or on any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.attention_call import AttentionCall
from clockhands.inspection.reading.attention_hooks import listen
from clockhands.inspection.reading.held_norms import HeldNorms
from clockhands.model.attention import AttentionContext
from clockhands.schemes import Scheme
from clockhands.shapes import Float, Tensor


class _Heard(Exception):
    """Leaves an attention module as soon as its attention is known; the rest of the module is not needed."""

    def __init__(self, call: AttentionCall) -> None:
        self.call = call


def _stop(call: AttentionCall) -> None:
    raise _Heard(call)


@dataclass
class Layer:
    """One attention layer: its module, how it was called, and its input on every text."""

    index: int
    module: nn.Module
    inputs_NTD: Float[Tensor, "N T D"]
    model: nn.Module = field(repr=False)
    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)
    time_first: bool = False

    @property
    def batch(self) -> int:
        """Texts computed at once; calls are recorded with masks of this size."""
        return self._given.shape[1 if self.time_first else 0]

    @property
    def _given(self) -> Tensor:
        """The input with which the layer was recorded."""
        hidden = hidden_input(self.args, self.kwargs)
        assert hidden is not None
        return hidden

    def replay(self, x_NTD: Float[Tensor, "N T D"]) -> AttentionCall:
        """Run this attention layer alone on another input of at most ``batch`` texts."""
        count, template = len(x_NTD), self._given
        if count < self.batch:
            x_NTD = torch.cat([x_NTD, x_NTD[-1:].expand(self.batch - count, -1, -1)])
        x = x_NTD.to(template)
        x = x.transpose(0, 1) if self.time_first else x.contiguous()
        args, kwargs = _with_input(self.args, self.kwargs, x)
        try:
            with torch.no_grad(), listen(self.model, _stop, within=self.module):
                self.module(*args, **kwargs)
        except _Heard as heard:
            return _first(heard.call, count)
        raise CheckpointError(f"{type(self.module).__name__} computed no attention when run alone")

    def calls(self) -> Iterator[tuple[slice, AttentionCall]]:
        """Attention on every text, batch by batch."""
        for rows in self.batches():
            yield rows, self.replay(self.inputs_NTD[rows])

    def batches(self) -> Iterator[slice]:
        """The texts, as many at a time as are replayed together."""
        for start in range(0, len(self.inputs_NTD), self.batch):
            yield slice(start, min(start + self.batch, len(self.inputs_NTD)))

    @property
    def scheme(self) -> Scheme | None:
        """The scheme of an attention of this project."""
        return next((arg.scheme for arg in self.args if isinstance(arg, AttentionContext)), None)

    @property
    def locates_tokens(self) -> bool:
        """Whether tokens say themselves where they stand (RePo, PaTH and others of this project)."""
        return self.scheme is not None and "locate" in self.scheme.active_hooks()

    @property
    def rewrites_logits(self) -> bool:
        """Whether whole rows of logits are rewritten, so that what is added depends on all words (CoPE, DAPE)."""
        return self.scheme is not None and "logits" in self.scheme.active_hooks()

    @cached_property
    def needs_holding(self) -> bool:
        """Whether something in the layer must be held at the real input, so that parts depend on their text."""
        frozen = HeldNorms(self.module, self.scheme)
        with frozen.record():
            self.replay(self.inputs_NTD[:1])
        return self.locates_tokens or bool(frozen.reciprocals)

    @cached_property
    def scale(self) -> float:
        """What multiplies q·k: told by the interface, else read off what of the logits is quadratic in the input."""
        x = self.inputs_NTD[: self.batch]
        up = self.replay(x)
        if up.scale is not None:
            return up.scale
        down, zero = self.replay(-x), self.replay(torch.zeros_like(x))
        bent = (up.logits_BHST.double() + down.logits_BHST.double()) / 2 - zero.logits_BHST.double()
        products = (up.q_BHSK - zero.q_BHSK).double() @ (up.k_BHTK - zero.k_BHTK).double().transpose(-1, -2)
        bent, products = bent[up.mask_BHST], products[up.mask_BHST]
        return float((bent * products).sum() / products.square().sum().clamp_min(1e-30))

    def bias(self, call: AttentionCall) -> Float[Tensor, "B H S T"]:
        """What the layer added to ``scale * q·k`` in this call; zero where masked."""
        if call.bias_BHST is not None:
            return call.bias_BHST
        products = self.scale * call.q_BHSK @ call.k_BHTK.transpose(-1, -2)
        return torch.where(call.mask_BHST, call.logits_BHST - products, 0.0)


def hidden_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The input among the arguments of an attention module: ``hidden_states`` by name, else the first tensor."""
    named = kwargs.get("hidden_states")
    return next((value for value in (named, *args, *kwargs.values()) if isinstance(value, Tensor)), None)


def _with_input(args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments with another input; where queries and keys are given it apart, it is one and the same."""
    given = hidden_input(args, kwargs)
    changed = {name: x if value is given else value for name, value in kwargs.items()}
    return tuple(x if value is given else value for value in args), changed


def _first(call: AttentionCall, count: int) -> AttentionCall:
    """The call without the rows that only filled up the batch."""
    tensors: dict[str, Any] = {name: value[:count] for name, value in vars(call).items() if isinstance(value, Tensor)}
    return replace(call, **tensors)
