"""One attention layer, kept so that it can be run again alone: on its recorded input, or on any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.attention_hooks import listen
from clockhands.inspection.reading.computed_attention import ComputedAttention
from clockhands.inspection.reading.frozen_norms_and_positions import FrozenNormsAndPositions
from clockhands.model.attention import AttentionContext
from clockhands.schemes import Scheme
from clockhands.shapes import Float, Tensor


class _AttentionKnown(Exception):
    """Leaves an attention module as soon as its attention is computed; the rest of the module is not needed."""

    def __init__(self, computed: ComputedAttention) -> None:
        self.computed = computed


def _stop(computed: ComputedAttention) -> None:
    """Receive an attention, and leave the module that computed it."""
    raise _AttentionKnown(computed)


@dataclass
class Layer:
    """One attention layer that can be run again: its module, the arguments of its call, and its input on every text.

    ``index`` counts layers from 0. ``inputs_NTD`` are on the CPU, in the dtype of the model; ``model`` is the stack
    that the layer belongs to. ``time_first``: the module's input is [T, N, D].
    """

    index: int
    module: nn.Module
    inputs_NTD: Float[Tensor, "N T D"]
    model: nn.Module = field(repr=False)
    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)
    time_first: bool = False

    @property
    def batch(self) -> int:
        """The number of texts of one run: the recorded arguments, such as masks, have this size."""
        return self._recorded_input.shape[1 if self.time_first else 0]

    @property
    def _recorded_input(self) -> Tensor:
        """The input of the batch on which the arguments were recorded."""
        return get_input(self.args, self.kwargs)

    def replay(self, x_NTD: Float[Tensor, "N T D"]) -> ComputedAttention:
        """Run this attention layer alone on another input, of at most ``batch`` texts.

        Raises CheckpointError if the module computes no attention when it runs alone.
        """
        count, recorded = len(x_NTD), self._recorded_input
        if count < self.batch:
            x_NTD = torch.cat([x_NTD, x_NTD[-1:].expand(self.batch - count, -1, -1)])
        x = x_NTD.to(recorded)
        x = x.transpose(0, 1) if self.time_first else x.contiguous()
        args, kwargs = _replace_input(self.args, self.kwargs, x)
        try:
            with torch.no_grad(), listen(self.model, _stop, within=self.module):
                self.module(*args, **kwargs)
        except _AttentionKnown as stopped:
            return _cut_batch(stopped.computed, count)
        raise CheckpointError(f"{type(self.module).__name__} computed no attention when run alone")

    def replay_all(self) -> Iterator[tuple[slice, ComputedAttention]]:
        """Run the layer again on every text, and yield the rows of each batch of texts with their attention."""
        for rows in self.list_batches():
            yield rows, self.replay(self.inputs_NTD[rows])

    def list_batches(self) -> Iterator[slice]:
        """Yield the rows of the texts that are replayed together, in their order."""
        for start in range(0, len(self.inputs_NTD), self.batch):
            yield slice(start, min(start + self.batch, len(self.inputs_NTD)))

    @property
    def scheme(self) -> Scheme | None:
        """The scheme of an attention layer of this project; None for others."""
        return next((arg.scheme for arg in self.args if isinstance(arg, AttentionContext)), None)

    @property
    def locates_tokens(self) -> bool:
        """Whether the scheme computes positions from the tokens: its ``locate`` hook (RePo, PaTH and others)."""
        return self.scheme is not None and "locate" in self.scheme.active_hooks()

    @property
    def rewrites_logits(self) -> bool:
        """Whether the scheme rewrites rows of logits (CoPE and others): what it adds may then depend on all tokens."""
        return self.scheme is not None and "logits" in self.scheme.active_hooks()

    @cached_property
    def needs_freezing(self) -> bool:
        """Whether norms or positions must be frozen at those of the real input; the split of its logits needs that."""
        frozen = FrozenNormsAndPositions(self.module, self.scheme)
        with frozen.record():
            self.replay(self.inputs_NTD[:1])
        return self.locates_tokens or bool(frozen.reciprocals)

    @cached_property
    def scale(self) -> float:
        """The factor of q·k in the logits.

        It is read with the attention, unless only the softmax was seen. Then the part of the logits that is quadratic
        in the input is regressed on q·k: the logits of x and of -x have the same quadratic part and opposite linear
        parts, and those of 0 are the constant part.
        """
        x = self.inputs_NTD[: self.batch]
        plus = self.replay(x)
        if plus.scale is not None:
            return plus.scale
        minus, zero = self.replay(-x), self.replay(torch.zeros_like(x))
        quadratic = (plus.logits_BHST.double() + minus.logits_BHST.double()) / 2 - zero.logits_BHST.double()
        products = (plus.q_BHSK - zero.q_BHSK).double() @ (plus.k_BHTK - zero.k_BHTK).double().transpose(-1, -2)
        quadratic, products = quadratic[plus.mask_BHST], products[plus.mask_BHST]
        return float((quadratic * products).sum() / products.square().sum().clamp_min(1e-30))

    def compute_bias(self, computed: ComputedAttention) -> Float[Tensor, "B H S T"]:
        """Return what the layer added to ``scale * q·k``; zero where masked."""
        bias_BHST = computed.bias_BHST
        if bias_BHST is None:
            bias_BHST = computed.logits_BHST - self.scale * computed.q_BHSK @ computed.k_BHTK.transpose(-1, -2)
        return torch.where(computed.mask_BHST, bias_BHST, 0.0)


def find_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the input among the arguments of an attention module: ``hidden_states`` by name, else the first tensor."""
    named = kwargs.get("hidden_states")
    return next((value for value in (named, *args, *kwargs.values()) if isinstance(value, Tensor)), None)


def get_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return what ``find_input`` finds. Raises CheckpointError where there is no tensor among the arguments."""
    hidden = find_input(args, kwargs)
    if hidden is None:
        raise CheckpointError(
            f"an attention module was called without a tensor ({len(args)} arguments, and by name "
            f"{', '.join(kwargs) or 'none'}), so inspect cannot run it again; please report this class"
        )
    return hidden


def _replace_input(args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with another input wherever the recorded one is: for queries, keys and values."""
    recorded = find_input(args, kwargs)
    changed = {name: x if value is recorded else value for name, value in kwargs.items()}
    return tuple(x if value is recorded else value for value in args), changed


def _cut_batch(computed: ComputedAttention, count: int) -> ComputedAttention:
    """Return the attention without the rows that only filled up the batch."""
    tensors: dict[str, Any] = {
        name: value[:count] for name, value in vars(computed).items() if isinstance(value, Tensor)
    }
    return replace(computed, **tensors)
