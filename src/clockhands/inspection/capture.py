"""One pass of a model over texts: hidden states and the input of every attention layer, kept for replay.

Attention itself is never stored: a layer's queries, keys and logits are computed again, batch by batch, from its
recorded input. What is stored grows with layers × texts × length × width, never with length².
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from clockhands.errors import CheckpointError
from clockhands.inspection.calls import ignore
from clockhands.inspection.layer import Layer, hidden_input
from clockhands.inspection.seams import listening
from clockhands.inspection.store import Store
from clockhands.model.attention import CrossAttention
from clockhands.shapes import Bool, Float, Int, Tensor


@dataclass
class Capture:
    """A model's hidden states and attention inputs on windows of equal length.

    ``hidden`` holds the embedding output and the output of every block, each N × T × D; ``ordinary_T`` is False where
    the tokenizer puts a special token in every window. ``source_NS`` is what the encoder read for a decoder (-1 where
    nothing stands), and ``across`` are the modules that look at it.
    """

    ids_NT: Int[Tensor, "N T"]
    hidden: list[Float[Tensor, "N T D"]]
    layers: list[Layer]
    ordinary_T: Bool[Tensor, " T"]
    source_NS: Int[Tensor, "N S"] | None = None
    across: list[nn.Module] = field(default_factory=list)

    @property
    def texts(self) -> int:
        """How many windows."""
        return len(self.ids_NT)

    @property
    def length(self) -> int:
        """Tokens in a window."""
        return self.ids_NT.shape[1]

    def given(self, rows: slice | Tensor) -> dict[str, Tensor]:
        """What ``forward`` needs beside the ids of these texts."""
        return {} if self.source_NS is None else {"source_BS": self.source_NS[rows]}


Forward = Callable[..., tuple[Tensor, ...]]


@torch.no_grad()
def capture(
    model: nn.Module,
    forward: Forward,
    ids_NT: Int[Tensor, "N T"],
    *,
    ordinary_T: Bool[Tensor, " T"] | None = None,
    source_NS: Int[Tensor, "N S"] | None = None,
    batch: int = 8,
    tick: Callable[[], None] = lambda: None,
) -> Capture:
    """Run ``forward`` (ids to the tuple of hidden states) over all windows and record what a replay needs.

    ``source_NS`` goes to ``forward`` as ``source_BS``, batch by batch. Raises CheckpointError if the model has no
    attention that can be read.
    """
    ordinary = torch.ones(ids_NT.shape[1], dtype=torch.bool) if ordinary_T is None else ordinary_T
    found = Capture(ids_NT, [], [], ordinary, source_NS)
    batch = min(batch, len(ids_NT))
    calls, found.across = _template(model, partial(forward, ids_NT[:batch], **found.given(slice(batch))))
    states = forward(ids_NT[:1], **found.given(slice(1)))
    store = Store((len(states) + len(calls)) * ids_NT.numel() * states[0].shape[-1] * states[0].element_size())
    layers = [_layer(index, call, ids_NT, model, store) for index, call in enumerate(calls)]
    hidden = [store.empty((len(ids_NT), *state.shape[1:]), state.dtype) for state in states]
    for start in range(0, len(ids_NT), batch):
        rows = torch.arange(start, start + batch).clamp(max=len(ids_NT) - 1)
        with listening(model, ignore), _recording(layers, rows):
            states = forward(ids_NT[rows], **found.given(rows))
        for kept, state in zip(hidden, states, strict=True):
            kept[rows] = state.to(kept.device)
        tick()
    found.hidden, found.layers = hidden, layers
    return found


@dataclass(frozen=True)
class _Recorded:
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _template(model: nn.Module, run: Callable[[], Any]) -> tuple[list[_Recorded], list[nn.Module]]:
    """How each self-attention layer is called, in order, for one batch; and the modules that look across."""
    heard: list[nn.Module] = []
    with listening(model, lambda call: heard.append(call.module)):
        run()
    if not heard:
        raise CheckpointError(
            f"no attention was seen in {type(model).__name__}: it has none, or computes it in a way that neither the "
            "attention interface of transformers nor a softmax shows"
        )
    recorded: list[_Recorded] = []
    modules = dict.fromkeys(heard)

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorded.append(_Recorded(module, args, kwargs))

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in modules]
    try:
        with listening(model, ignore):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    across = [call.module for call in recorded if _is_cross(call.module, call.kwargs)]
    return [call for call in recorded if call.module not in across], across


def _is_cross(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    told = ("key_value_states", "encoder_hidden_states")
    return isinstance(module, CrossAttention) or any(kwargs.get(name) is not None for name in told)


def _layer(index: int, call: _Recorded, ids_NT: Tensor, model: nn.Module, store: Store) -> Layer:
    hidden = hidden_input(call.args, call.kwargs)
    count, length = ids_NT.shape
    time_first = hidden.shape[0] == length and hidden.shape[1] != length and "xlnet" in type(model).__name__.lower()
    inputs = store.empty((count, length, hidden.shape[-1]), hidden.dtype)
    return Layer(index, call.module, inputs, model, call.args, call.kwargs, time_first)


@contextlib.contextmanager
def _recording(layers: list[Layer], rows: Tensor) -> Iterator[None]:
    """Write the input of every attention layer of one forward pass to its place."""
    coming = iter(layers)

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not _is_cross(module, kwargs):
            layer = next(coming)
            x = hidden_input(args, kwargs)
            layer.inputs_NTD[rows] = (x.transpose(0, 1) if layer.time_first else x).to(layer.inputs_NTD.device)

    modules = dict.fromkeys(layer.module for layer in layers)
    hooks = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
