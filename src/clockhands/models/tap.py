"""Read the attention of any model while it runs, and change it: at its softmax, or at PyTorch's fused function."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from clockhands.models.facts import find_count

_PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
_SHIFTED = {torch.baddbmm, Tensor.baddbmm}
_FUSED = F.scaled_dot_product_attention
_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
MOST_PRODUCTS = 8
"""Matrix products that are kept until a softmax; that of queries and keys is among the first of its module."""


@dataclass(frozen=True)
class TappedAttention:
    """One attention of a forward pass. Shapes: B rows, H heads, S queries, T keys, K the width of a head.

    ``module`` computed it; ``name`` is its own. Keys are repeated for the heads that share them. ``logits`` are what
    entered the softmax, with the mask as very negative numbers. With a ``sink``, one more logit of each query takes
    weight and belongs to no key (GPT-OSS); the others are then told as their distance to it, so that it is 0.
    """

    name: str
    module: nn.Module
    q_BHSK: Tensor
    k_BHTK: Tensor
    logits_BHST: Tensor
    sink: bool = False


Change = Callable[[int, TappedAttention], Tensor | None]
"""From the number of an attention in its pass, and the attention, to other logits; None leaves it alone."""


@dataclass(frozen=True)
class _Product:
    """A matrix product that may be that of queries and keys: its operands [.., S, K] and [.., T, K], and its shape."""

    module: nn.Module
    queries: Tensor
    keys: Tensor
    shape: torch.Size


RunningModules = list[tuple[str, nn.Module]]
"""The modules that are running, with their names, innermost last."""


@contextmanager
def follow_modules(model: nn.Module, *on_enter: Callable[[nn.Module, Any], None]) -> Iterator[RunningModules]:
    """Inside the block, keep the list of what runs; ``on_enter`` are given each module that begins, and its arguments.

    Modules without parameters are left out: an ``nn.Softmax`` of an attention layer would be innermost in its place.
    """
    running: RunningModules = []

    def leave(module: nn.Module, args: object, output: object) -> None:
        running.pop()

    handles: list[RemovableHandle] = []
    for name, module in model.named_modules():
        if any(True for _ in module.parameters()):
            handles.append(module.register_forward_pre_hook(lambda *_, entry=(name, module): running.append(entry)))
            handles += [module.register_forward_pre_hook(hook) for hook in on_enter]
            handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield running
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def tap_attention(module: nn.Module, rows: int | None, change: Change) -> Iterator[_AttentionTap]:
    """Inside the block, give ``change`` every attention of a module's forward passes, in order.

    ``rows`` is the number of texts, by which heads are found where code joins both axes; without it, an attribute of
    the module that runs tells how many heads there are.
    """
    tap = _AttentionTap(rows, change)
    # transformers would hand the heads of one query that share their keys to PyTorch as so many queries.
    unpacked = mock.patch.dict(os.environ, TRANSFORMERS_SDPA_FORCE_GQA="1")
    with unpacked, follow_modules(module, tap.forget) as tap.running, tap:
        yield tap


class _AttentionTap(TorchFunctionMode):
    """Is handed every function of PyTorch that a module calls, and finds attention among them (``tap_attention``)."""

    def __init__(self, rows: int | None, change: Change) -> None:
        super().__init__()
        self.rows, self.change, self.count = rows, change, 0
        self.running: RunningModules = []
        self.products: list[_Product] = []
        self.weights = range(0)  # how many keys the last softmax weighed, until its values are multiplied

    def forget(self, module: nn.Module, args: object) -> None:
        """Forget what a module multiplied when it ran before."""
        self.products = [product for product in self.products if product.module is not module]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.running:
            return func(*args, **kwargs)
        if func is _FUSED:
            return self._fused(func, args, kwargs)
        if func in _SOFTMAX:
            return self._softmax(func, args, kwargs)
        if func is F.multi_head_attention_forward:  # within it this mode is off: it finds the fused function by name
            with mock.patch.object(F, "scaled_dot_product_attention", self._fused_inside):
                return func(*args, **kwargs)
        output = func(*args, **kwargs)
        operands = _read_operands(func, args, kwargs)
        if operands is not None and operands[0].shape[-1] in self.weights:  # weights times values: one such a softmax
            self.weights = range(0)
        elif operands is not None:
            product = _Product(self.running[-1][1], *operands, output.shape)
            self.products = [*self.products[1 - MOST_PRODUCTS :], product]
        return output

    def _softmax(self, func: Any, args: Any, kwargs: Any) -> Any:
        logits = args[0] if args else kwargs["input"]
        factors = self._find_factors(logits)
        if factors is None:
            return func(*args, **kwargs)
        q, k = factors
        self.weights = range(k.shape[2], logits.shape[-1] + 1)
        sink = logits[..., k.shape[2] :]
        scores = logits[..., : k.shape[2]] - sink if sink.numel() else logits
        scores = scores.reshape(*q.shape[:3], k.shape[2])
        self.count += 1
        changed = self.change(self.count - 1, TappedAttention(*self.running[-1], q, k, scores, bool(sink.numel())))
        if changed is None:
            return func(*args, **kwargs)
        if sink.numel():  # a softmax does not change when every logit of a row moves by the same
            changed = F.pad(changed, (0, 1))
        named = {name: value for name, value in kwargs.items() if name != "input"}
        return func(changed.reshape(logits.shape).to(logits.dtype), *args[1:], **named)

    def _find_factors(self, logits: Tensor) -> tuple[Tensor, Tensor] | None:
        """Find the queries and keys of logits: of the running module's products of their shape the first.

        Positions are multiplied after them, and values after the softmax. Where the module has none, its softmax is in
        another module than the product, and the last of all is taken. None if there is none.
        """
        if logits.dim() not in (3, 4):
            return None  # no attention: some convolutions apply a softmax to their weights
        shaped = [
            product
            for product in self.products
            if product.shape[-2] == logits.shape[-2]
            and logits.shape[-1] - product.shape[-1] in (0, 1)  # 1: of a sink, which is written last
            and product.shape[:-1].numel() == logits.shape[:-1].numel()
        ]
        own = [product for product in shaped if product.module is self.running[-1][1]]
        if not shaped:
            return None
        self.products = []
        near = own or shaped[::-1]
        product = next((product for product in near if product.shape[-1] == logits.shape[-1]), near[0])
        rows = self.rows or (len(logits) if logits.dim() == 4 else None)
        if rows is None:  # texts and heads are one axis
            heads = find_count(self.running[-1][1], "num_heads", "n_heads", "num_attention_heads", "n_head")
            rows = None if heads is None or len(logits) % heads else len(logits) // heads
        return None if rows is None else _split_heads(product.queries, product.keys, rows)

    def _fused_inside(self, *args: Any, **kwargs: Any) -> Any:
        return self._fused(_FUSED, args, kwargs)

    def _fused(self, func: Any, args: Any, kwargs: Any) -> Any:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        query, key, value = (arguments[name] for name in names[:3])
        q, k = _split_heads(query, key, len(query) if self.rows is None else self.rows)
        scale = arguments.get("scale") or 1 / math.sqrt(q.shape[-1])
        logits, mask = q @ k.mT * scale, arguments.get("attn_mask")
        least = torch.finfo(logits.dtype).min
        if arguments.get("is_causal", False):
            mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        if mask is not None:
            masked = logits.masked_fill(~mask, least) if mask.dtype == torch.bool else logits + mask
            logits = masked.clamp(min=least)
        self.count += 1
        changed = self.change(self.count - 1, TappedAttention(*self.running[-1], q, k, logits))
        if changed is None:
            return func(*args, **kwargs)
        value = value.repeat_interleave(q.shape[1] // value.shape[1], 1)
        return (changed.softmax(-1) @ value).to(value.dtype)


def _split_heads(q: Tensor, k: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return rows and heads of queries and keys as two axes; heads that share their keys get a copy each."""
    q, k = (x.reshape(rows, -1, *x.shape[-2:]) for x in (q, k))
    return q, k.repeat_interleave(q.shape[1] // k.shape[1], 1)


def _read_operands(func: Any, args: Any, kwargs: Any) -> tuple[Tensor, Tensor] | None:
    """Return queries [.., S, K] and keys [.., T, K] of a product that could be their logits; None for others."""
    if func in _PRODUCTS and len(args) == 2 and args[0].dim() == args[1].dim() >= 3:
        return args[0], args[1].mT
    if func in _SHIFTED:
        first, second = kwargs.get("batch1"), kwargs.get("batch2")
        first, second = (args[1], args[2]) if first is None or second is None else (first, second)
        return first, second.mT
    if func is torch.einsum and len(args) == 3 and args[1].dim() == args[2].dim() == 4:
        return _read_einsum(*args)
    return None


def _read_einsum(equation: str, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the operands of an equation such as ``bhqd,bhkd->bhqk`` as queries and keys; None for any other."""
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    left, _, right = inputs.partition(",")
    if not arrow:
        return None  # the axes of the result are then implicit
    shared = "".join(axis for axis in left if axis not in result)
    if len(result) != 4 or len(shared) != 1 or not set(result[:2]) <= set(left) & set(right):
        return None
    if result[2] in right or result[3] in left:
        return None
    queries, keys = result[:2] + result[2] + shared, result[:2] + result[3] + shared
    return torch.einsum(f"{left}->{queries}", first), torch.einsum(f"{right}->{keys}", second)
