"""One pass of a model over texts: hidden states and the input of every attention layer, kept for replay.

Attention itself is never stored: a layer's queries, keys and logits are computed again, batch by batch, from its
recorded input. What is stored grows with layers × texts × length × width, never with length².
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from clockhands.errors import CheckpointError
from clockhands.inspection.calls import AttentionCall, ignore
from clockhands.inspection.freeze import Frozen
from clockhands.inspection.seams import listening
from clockhands.inspection.store import Store
from clockhands.shapes import Bool, Float, Int, Tensor


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
        return _hidden(self.args, self.kwargs).shape[1 if self.time_first else 0]

    def replay(self, x_NTD: Float[Tensor, "N T D"]) -> AttentionCall:
        """Run this attention layer alone on another input of at most ``batch`` texts."""
        count, template = len(x_NTD), _hidden(self.args, self.kwargs)
        if count < self.batch:
            x_NTD = torch.cat([x_NTD, x_NTD[-1:].expand(self.batch - count, -1, -1)])
        x = x_NTD.to(template)
        x = x.transpose(0, 1) if self.time_first else x
        args, kwargs = _with_hidden(self.args, self.kwargs, x)
        try:
            with torch.no_grad(), listening(self.model, _stop, within=self.module):
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

    def parts(self, whole_NTD: Tensor, parts: dict[str, Tensor]) -> tuple[AttentionCall, dict[str, AttentionCall]]:
        """Attention on the real input and on each part of it, norms of queries and keys held at the real one."""
        frozen = Frozen(self.module)
        with frozen.recording():
            real = self.replay(whole_NTD)
        with frozen.applied():
            return real, {name: self.replay(part) for name, part in parts.items()}

    @cached_property
    def normalises(self) -> bool:
        """Whether queries or keys are normalised inside the layer, so that parts depend on the text they came from."""
        frozen = Frozen(self.module)
        with frozen.recording():
            self.replay(self.inputs_NTD[:1])
        return bool(frozen.reciprocals)

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
        bent, products = bent[up.allowed_BHST], products[up.allowed_BHST]
        return float((bent * products).sum() / products.square().sum().clamp_min(1e-30))

    def bias(self, call: AttentionCall) -> Float[Tensor, "B H S T"]:
        """What the layer added to ``scale * q·k`` in this call; zero where masked."""
        if call.bias_BHST is not None:
            return call.bias_BHST
        products = self.scale * call.q_BHSK @ call.k_BHTK.transpose(-1, -2)
        return torch.where(call.allowed_BHST, call.logits_BHST - products, 0.0)


@dataclass
class Capture:
    """A model's hidden states and attention inputs on windows of equal length.

    ``hidden`` holds the embedding output and the output of every block, each N × T × D; ``ordinary_T`` is False where
    the tokenizer puts a special token in every window.
    """

    ids_NT: Int[Tensor, "N T"]
    hidden: list[Float[Tensor, "N T D"]]
    layers: list[Layer]
    ordinary_T: Bool[Tensor, " T"]

    @property
    def texts(self) -> int:
        """How many windows."""
        return len(self.ids_NT)

    @property
    def length(self) -> int:
        """Tokens in a window."""
        return self.ids_NT.shape[1]


Forward = Callable[[Tensor], tuple[Tensor, ...]]


@torch.no_grad()
def capture(
    model: nn.Module,
    forward: Forward,
    ids_NT: Int[Tensor, "N T"],
    *,
    ordinary_T: Bool[Tensor, " T"] | None = None,
    batch: int = 8,
    tick: Callable[[], None] = lambda: None,
) -> Capture:
    """Run ``forward`` (ids to the tuple of hidden states) over all windows and record what a replay needs.

    Raises CheckpointError if the model has no attention that can be read.
    """
    batch = min(batch, len(ids_NT))
    calls = _template(model, forward, ids_NT[:batch])
    store = Store(_bytes(forward, ids_NT, len(calls)))
    layers = [_layer(index, call, ids_NT, model, store) for index, call in enumerate(calls)]
    hidden: list[Tensor] = []
    for start in range(0, len(ids_NT), batch):
        rows = torch.arange(start, start + batch).clamp(max=len(ids_NT) - 1)
        with listening(model, ignore), _recording(layers, rows):
            states = forward(ids_NT[rows])
        if not hidden:
            hidden = [store.empty((len(ids_NT), *state.shape[1:]), state.dtype) for state in states]
        for kept, state in zip(hidden, states, strict=True):
            kept[rows] = state.to(kept.device)
        tick()
    ordinary = torch.ones(ids_NT.shape[1], dtype=torch.bool) if ordinary_T is None else ordinary_T
    return Capture(ids_NT, hidden, layers, ordinary)


@dataclass(frozen=True)
class _Recorded:
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _template(model: nn.Module, forward: Forward, ids_BT: Tensor) -> list[_Recorded]:
    """How each self-attention layer is called, in order, for one batch."""
    heard: list[AttentionCall] = []
    with listening(model, heard.append):
        forward(ids_BT)
    if not heard:
        raise CheckpointError(
            f"no attention was seen in {type(model).__name__}: it has none, or computes it in a way that neither the "
            "attention interface of transformers nor a softmax shows"
        )
    recorded: list[_Recorded] = []
    modules = dict.fromkeys(call.module for call in heard)

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorded.append(_Recorded(module, args, kwargs))

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in modules]
    try:
        with listening(model, ignore):
            forward(ids_BT)
    finally:
        for hook in hooks:
            hook.remove()
    return [call for call in recorded if not _is_cross(call.kwargs)]


def _is_cross(kwargs: dict[str, Any]) -> bool:
    return any(kwargs.get(name) is not None for name in ("key_value_states", "encoder_hidden_states"))


def _layer(index: int, call: _Recorded, ids_NT: Tensor, model: nn.Module, store: Store) -> Layer:
    hidden = _hidden(call.args, call.kwargs)
    count, length = ids_NT.shape
    time_first = hidden.shape[0] == length and hidden.shape[1] != length and "xlnet" in type(model).__name__.lower()
    inputs = store.empty((count, length, hidden.shape[-1]), hidden.dtype)
    return Layer(index, call.module, inputs, model, call.args, call.kwargs, time_first)


@contextlib.contextmanager
def _recording(layers: list[Layer], rows: Tensor) -> Iterator[None]:
    """Write the input of every attention layer of one forward pass to its place."""
    coming = iter(layers)

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not _is_cross(kwargs):
            layer = next(coming)
            x = _hidden(args, kwargs)
            layer.inputs_NTD[rows] = (x.transpose(0, 1) if layer.time_first else x).to(layer.inputs_NTD.device)

    modules = dict.fromkeys(layer.module for layer in layers)
    hooks = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _hidden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The input among the arguments of an attention module: ``hidden_states`` by name, else the first tensor."""
    if isinstance(kwargs.get("hidden_states"), Tensor):
        return kwargs["hidden_states"]
    return next(arg for arg in args if isinstance(arg, Tensor))


def _with_hidden(args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(kwargs.get("hidden_states"), Tensor):
        return args, {**kwargs, "hidden_states": x}
    place = next(index for index, arg in enumerate(args) if isinstance(arg, Tensor))
    return (*args[:place], x, *args[place + 1 :]), kwargs


def _first(call: AttentionCall, count: int) -> AttentionCall:
    """The call without the rows that only filled up the batch."""
    tensors: dict[str, Any] = {name: value[:count] for name, value in vars(call).items() if isinstance(value, Tensor)}
    return replace(call, **tensors)


def _bytes(forward: Forward, ids_NT: Tensor, layers: int) -> int:
    states = forward(ids_NT[:1])
    return (len(states) + layers) * ids_NT.numel() * states[0].shape[-1] * states[0].element_size()
