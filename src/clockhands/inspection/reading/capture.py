"""Run a model over texts, and record hidden states and the input of every attention layer.

Each batch runs once. Before that the first batch runs twice, to find the attention layers, and its first text once, to
know the size of the states.

Attention itself is not stored: a layer is run again on its recorded input, batch by batch, whenever its queries, keys
and logits are needed. What is stored grows with layers × texts × length × width; only the masks among the recorded
arguments, those of one batch, grow with length².
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.attention_hooks import listen
from clockhands.inspection.reading.attention_search import (
    ModuleCall,
    is_cross_attention,
    is_time_first,
    record_calls,
)
from clockhands.inspection.reading.computed_attention import ignore_attention
from clockhands.inspection.reading.layer import Layer, get_input
from clockhands.inspection.reading.repeated_texts import Repeats, find_repeats
from clockhands.inspection.reading.tensor_storage import TensorStorage
from clockhands.models.input_table import Forward
from clockhands.shapes import Bool, Float, Int, Tensor

FIRST_POSITION_NOTE = (
    " Position 0 and special tokens are left out: in most trained models the row of position 0 is an outlier, and the "
    "states there have one huge direction that has nothing to do with position."
)
"""The sentence on the first position, for the ``method`` of the measures that read ``Capture.measured_T``."""


BATCH = 8
"""Texts that are run at once, unless a caller says another number."""


@dataclass
class Capture:
    """A model's hidden states and attention inputs on windows of equal length.

    ``hidden`` holds the embedding output and the output of every block, each N × T × D; ``ordinary_T`` is False at the
    positions of special tokens, which are the same in every window. ``source_NS`` are the ids that the encoder read for
    a decoder (-1: padding), and ``cross_modules`` the modules of its cross-attention. ``unread_reason`` says why there
    are no ``layers``, or why one is missing; it is empty where all attention could be read. States, and the inputs of
    the layers, are on the CPU, in the dtype of the model.
    """

    ids_NT: Int[Tensor, "N T"]
    hidden: list[Float[Tensor, "N T D"]]
    layers: list[Layer]
    ordinary_T: Bool[Tensor, " T"]
    source_NS: Int[Tensor, "N S"] | None = None
    cross_modules: list[nn.Module] = field(default_factory=list)
    unread_reason: str = ""

    @property
    def num_texts(self) -> int:
        """The number of windows."""
        return len(self.ids_NT)

    @property
    def length(self) -> int:
        """The number of tokens of a window."""
        return self.ids_NT.shape[1]

    @property
    def measured_T(self) -> Bool[Tensor, " T"]:
        """The positions of ordinary tokens without position 0, at which rows and hidden states are measured.

        Measures that compare the output before and after a change count position 0 too.
        """
        measured_T = self.ordinary_T.clone()
        measured_T[0] = False
        return measured_T

    @cached_property
    def repeats(self) -> Repeats:
        """Which of the texts repeat each other."""
        return find_repeats(self.ids_NT[:, self.ordinary_T])

    def make_forward_options(self, rows: slice | Tensor) -> dict[str, Tensor]:
        """Return the keyword arguments of ``forward`` for the texts of these rows: a decoder's source."""
        return {} if self.source_NS is None else {"source_BS": self.source_NS[rows]}


@torch.no_grad()
def capture(
    model: nn.Module,
    forward: Forward,
    ids_NT: Int[Tensor, "N T"],
    *,
    ordinary_T: Bool[Tensor, " T"] | None = None,
    source_NS: Int[Tensor, "N S"] | None = None,
    batch: int = BATCH,
    progress: Callable[[], object] = lambda: None,
) -> Capture:
    """Run ``forward`` over all windows, ``batch`` at once, and record what a replay of its attention needs.

    ``ordinary_T`` marks the positions without special tokens (default: all). ``source_NS`` goes to ``forward`` as
    ``source_BS``, batch by batch. ``progress`` is called after each batch. Attention that is not computed as logits of
    every token for every token is left out, and ``unread_reason`` says why. Raises CheckpointError if no attention was
    seen in the model, or if it gives NaN or infinite states, or not one state per token; UsageError if the disk has no
    room for the states.
    """
    ordinary = torch.ones(ids_NT.shape[1], dtype=torch.bool) if ordinary_T is None else ordinary_T
    result = Capture(ids_NT, [], [], ordinary, source_NS)
    batch = min(batch, len(ids_NT))
    run = partial(forward, ids_NT[:batch], **result.make_forward_options(slice(batch)))
    calls, result.cross_modules, result.unread_reason = record_calls(model, run, (batch, ids_NT.shape[1]))
    states = forward(ids_NT[:1], **result.make_forward_options(slice(1)))
    _check_lengths(states, result.length, model)
    storage = TensorStorage(
        (len(states) + len(calls)) * ids_NT.numel() * states[0].shape[-1] * states[0].element_size()
    )
    layers = [_make_layer(index, call, ids_NT, model, storage) for index, call in enumerate(calls)]
    hidden = [storage.allocate((len(ids_NT), *state.shape[1:]), state.dtype) for state in states]
    for start in range(0, len(ids_NT), batch):
        # The last text fills up the last batch: masks among the recorded arguments have the size of a batch.
        rows = torch.arange(start, start + batch).clamp(max=len(ids_NT) - 1)
        with listen(model, ignore_attention), _store_inputs(layers, rows):
            states = forward(ids_NT[rows], **result.make_forward_options(rows))
        _store_states(hidden, states, rows, model)
        progress()
    result.hidden, result.layers = hidden, layers
    return result


def _check_lengths(states: tuple[Tensor, ...], length: int, model: nn.Module) -> None:
    """Raise CheckpointError unless there is one state for each of ``length`` tokens."""
    other = next((state.shape[1] for state in states if state.shape[1] != length), None)
    if other is not None:
        raise CheckpointError(
            f"{type(model).__name__} gives {other} states for {length} tokens, so "
            "they do not belong to positions; try another --length (length=...)"
        )


def _store_states(hidden: list[Tensor], states: tuple[Tensor, ...], rows: Tensor, model: nn.Module) -> None:
    """Store the hidden states of the texts ``rows``. Raises CheckpointError for states that are NaN or infinite."""
    for index, (stored, state) in enumerate(zip(hidden, states, strict=True)):
        if not bool(torch.isfinite(state).all()):
            where = "its embedding" if index == 0 else f"layer {index}"
            raise CheckpointError(
                f"{type(model).__name__} gives NaN or infinite hidden states after {where}; check its weights, which "
                "may be damaged or too large for float32"
            )
        stored[rows] = state.to(stored.device)


def _make_layer(index: int, call: ModuleCall, ids_NT: Tensor, model: nn.Module, storage: TensorStorage) -> Layer:
    """Make the layer of a call, with storage for its inputs that is not filled yet."""
    hidden = get_input(call.args, call.kwargs)
    count, length = ids_NT.shape
    inputs = storage.allocate((count, length, hidden.shape[-1]), hidden.dtype)
    return Layer(index, call.module, inputs, model, call.args, call.kwargs, is_time_first(hidden, length, model))


@contextlib.contextmanager
def _store_inputs(layers: list[Layer], rows: Tensor) -> Iterator[None]:
    """Inside the block, store the inputs of the attention layers of a forward pass over the texts ``rows``."""
    remaining = iter(layers)

    def store(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not is_cross_attention(module, kwargs):
            layer = next(remaining)
            x = get_input(args, kwargs)
            layer.inputs_NTD[rows] = (x.transpose(0, 1) if layer.time_first else x).to(layer.inputs_NTD.device)

    modules = dict.fromkeys(layer.module for layer in layers)
    hooks = [module.register_forward_pre_hook(store, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
