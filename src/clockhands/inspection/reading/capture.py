"""One pass of a model over texts: hidden states and the input of every attention layer, kept for replay.

Attention itself is never stored: a layer's queries, keys and logits are computed again, batch by batch, from its
recorded input. What is stored grows with layers × texts × length × width, never with length².
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
from clockhands.inspection.reading.attention_call import AttentionCall, ignore
from clockhands.inspection.reading.attention_hooks import listen
from clockhands.inspection.reading.layer import Layer, hidden_input
from clockhands.inspection.reading.repeated_texts import Repeats, repeats
from clockhands.inspection.reading.tensor_storage import TensorStorage
from clockhands.model.attention import CrossAttention
from clockhands.pretrained import first_line
from clockhands.shapes import Bool, Float, Int, Tensor

WITHOUT_FIRST = (
    " Position 0 and special tokens are left out, as in all measures of vectors: in most trained models the row of "
    "position 0 is an outlier, and what stands there carries one huge direction that has nothing to do with place."
)
"""The one rule about the first position, for the method of every measure of position rows or hidden states."""


@dataclass
class Capture:
    """A model's hidden states and attention inputs on windows of equal length.

    ``hidden`` holds the embedding output and the output of every block, each N × T × D; ``ordinary_T`` is False where
    the tokenizer puts a special token in every window. ``source_NS`` is what the encoder read for a decoder (-1 where
    nothing stands), and ``cross_modules`` are the modules that look at it. ``unread_reason`` says why there are no
    ``layers``, or why one is missing, where the model has attention that cannot be read.
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
        """How many windows."""
        return len(self.ids_NT)

    @property
    def length(self) -> int:
        """Tokens in a window."""
        return self.ids_NT.shape[1]

    @property
    def counted_T(self) -> Bool[Tensor, " T"]:
        """Where position rows and hidden states are measured: at ordinary tokens, position 0 left out."""
        kept = self.ordinary_T.clone()
        kept[0] = False
        return kept

    @cached_property
    def repeats(self) -> Repeats:
        """Which of the texts repeat each other."""
        return repeats(self.ids_NT[:, self.ordinary_T])

    def forward_options(self, rows: slice | Tensor) -> dict[str, Tensor]:
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
    tick: Callable[[], object] = lambda: None,
) -> Capture:
    """Run ``forward`` (ids to the tuple of hidden states) over all windows and record what a replay needs.

    ``source_NS`` goes to ``forward`` as ``source_BS``, batch by batch. Raises CheckpointError if the model has no
    attention. Where it has, but not as logits of every token for every token, its states are recorded all the same.
    """
    ordinary = torch.ones(ids_NT.shape[1], dtype=torch.bool) if ordinary_T is None else ordinary_T
    found = Capture(ids_NT, [], [], ordinary, source_NS)
    batch = min(batch, len(ids_NT))
    run = partial(forward, ids_NT[:batch], **found.forward_options(slice(batch)))
    calls, found.cross_modules, found.unread_reason = _template(model, run, (batch, ids_NT.shape[1]))
    states = forward(ids_NT[:1], **found.forward_options(slice(1)))
    if any(state.shape[1] != found.length for state in states):
        raise CheckpointError(
            f"{type(model).__name__} gives {max(state.shape[1] for state in states)} states for {found.length} tokens, "
            "so they cannot be told apart by place; try another --length (length=...)"
        )
    store = TensorStorage((len(states) + len(calls)) * ids_NT.numel() * states[0].shape[-1] * states[0].element_size())
    layers = [_layer(index, call, ids_NT, model, store) for index, call in enumerate(calls)]
    hidden = [store.empty((len(ids_NT), *state.shape[1:]), state.dtype) for state in states]
    for start in range(0, len(ids_NT), batch):
        rows = torch.arange(start, start + batch).clamp(max=len(ids_NT) - 1)
        with listen(model, ignore), _recording(layers, rows):
            states = forward(ids_NT[rows], **found.forward_options(rows))
        for index, (kept, state) in enumerate(zip(hidden, states, strict=True)):
            _check_finite(state, index, model)
            kept[rows] = state.to(kept.device)
        tick()
    found.hidden, found.layers = hidden, layers
    return found


def _check_finite(state: Tensor, index: int, model: nn.Module) -> None:
    """Raises CheckpointError for states that are NaN or infinite: nothing measured on them would mean anything."""
    if not bool(torch.isfinite(state).all()):
        where = "its embedding" if index == 0 else f"layer {index}"
        raise CheckpointError(
            f"{type(model).__name__} gives NaN or infinite hidden states behind {where}; check its weights, which may "
            "be damaged or too large for float32"
        )


@dataclass(frozen=True)
class _Recorded:
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _template(
    model: nn.Module, run: Callable[[], Any], shape: tuple[int, int]
) -> tuple[list[_Recorded], list[nn.Module], str]:
    """Return how each self-attention layer is called, in order; the modules that look across; why one is missing."""
    readable, unread = _readable(model, run, shape)
    recorded: list[_Recorded] = []

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # A cache would grow with every replay.
        kept = {name: None if _is_cache(value) else value for name, value in kwargs.items()}
        recorded.append(_Recorded(module, tuple(None if _is_cache(value) else value for value in args), kept))

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in readable]
    try:
        with listen(model, ignore):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    across = [call.module for call in recorded if _is_cross(call.module, call.kwargs)]
    faults = [(call, _fault(call, model, shape)) for call in recorded if call.module not in across]
    found = [call for call, fault in faults if not fault]
    fault = next((fault for _, fault in faults if fault), "")
    return found, across, fault if found else unread or fault


def _readable(model: nn.Module, run: Callable[[], Any], shape: tuple[int, int]) -> tuple[list[nn.Module], str]:
    """The modules whose attention is seen as logits of every token for every token, and why others are not.

    Raises CheckpointError if there is no attention at all.
    """
    heard: dict[nn.Module, bool] = {}
    entered: dict[str, None] = {}

    def hear(call: AttentionCall) -> None:
        # A decoder's look at another text has keys of that length.
        square = call.logits_BHST.shape[0] == shape[0] and call.logits_BHST.shape[2] == shape[1]
        heard[call.module] = heard.get(call.module, True) and square

    hooks = [
        module.register_forward_pre_hook(lambda module, args: entered.setdefault(type(module).__name__))
        for module in model.modules()
        if "attention" in type(module).__name__.lower()
    ]
    unread = ""
    try:
        with listen(model, hear):
            run()
    except CheckpointError as fault:
        unread = str(fault)
        heard.clear()
    finally:
        for hook in hooks:
            hook.remove()
    if not heard and not entered:
        raise CheckpointError(
            f"no attention was seen in {type(model).__name__}: it has none, or computes it in a way that neither the "
            "attention interface of transformers nor a softmax shows"
        )
    names = {type(module).__name__ for module, square in heard.items() if not square} or set(entered)
    blocks = f"the attention of {', '.join(sorted(names))} is not computed as logits of every token for every token"
    return [module for module, square in heard.items() if square], unread or blocks


def _fault(call: _Recorded, model: nn.Module, shape: tuple[int, int]) -> str:
    """Why a layer cannot be run again alone; empty if it can."""
    kind = type(call.module).__name__
    hidden = hidden_input(call.args, call.kwargs)
    if hidden is None or tuple(hidden.shape[:-1]) not in (shape, shape[::-1]):
        return f"the attention of {kind} is not given one vector per token"
    count, length = shape
    layer = Layer(0, call.module, hidden, model, call.args, call.kwargs, _time_first(hidden, length, model))
    try:
        logits = layer.replay(hidden.transpose(0, 1) if layer.time_first else hidden).logits_BHST
    except Exception as fault:  # foreign code, run in a way that it was not written for
        return f"the attention of {kind} cannot be run alone ({type(fault).__name__}: {first_line(fault)})"
    if logits.shape[0] != count or tuple(logits.shape[2:]) != (length, length):
        return f"the attention of {kind} is not computed as logits of every token for every token"
    return ""


def _is_cache(value: Any) -> bool:
    return type(value).__name__.endswith("Cache")


def _is_cross(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    told = ("key_value_states", "encoder_hidden_states")
    return isinstance(module, CrossAttention) or any(kwargs.get(name) is not None for name in told)


def _layer(index: int, call: _Recorded, ids_NT: Tensor, model: nn.Module, store: TensorStorage) -> Layer:
    hidden = hidden_input(call.args, call.kwargs)
    assert hidden is not None
    count, length = ids_NT.shape
    inputs = store.empty((count, length, hidden.shape[-1]), hidden.dtype)
    return Layer(index, call.module, inputs, model, call.args, call.kwargs, _time_first(hidden, length, model))


def _time_first(hidden: Tensor, length: int, model: nn.Module) -> bool:
    """Whether the first axis is the text's. Where there are as many texts as tokens, only the class tells."""
    return hidden.shape[0] == length and (hidden.shape[1] != length or "xlnet" in type(model).__name__.lower())


@contextlib.contextmanager
def _recording(layers: list[Layer], rows: Tensor) -> Iterator[None]:
    """Write the input of every attention layer of one forward pass to its place."""
    coming = iter(layers)

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not _is_cross(module, kwargs):
            layer = next(coming)
            x = hidden_input(args, kwargs)
            assert x is not None
            layer.inputs_NTD[rows] = (x.transpose(0, 1) if layer.time_first else x).to(layer.inputs_NTD.device)

    modules = dict.fromkeys(layer.module for layer in layers)
    hooks = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
