"""Read the attention of any model while it runs, and change it: at its softmax, or at PyTorch's fused function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
_SHIFTED = {torch.baddbmm, Tensor.baddbmm}
_FUSED = F.scaled_dot_product_attention
_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
_KEPT = 6


@dataclass(frozen=True)
class Attention:
    """One attention of a forward pass. Shapes: B rows, H heads, S queries, T keys, K the width of a head.

    ``name`` is that of the module that computed it. Keys are repeated for the heads that share them. ``logits`` are
    what entered the softmax, with the mask as very negative numbers.
    """

    name: str
    q_BHSK: Tensor
    k_BHTK: Tensor
    logits_BHST: Tensor


Change = Callable[[int, Attention], Tensor | None]
"""From the number of an attention in its pass, and the attention, to other logits; None leaves it alone."""


class AttentionTap(TorchFunctionMode):
    """While it is entered, ``change`` is given every attention of a module's forward passes, in order.

    ``rows`` is the number of texts, by which heads are found where code joins both axes.
    """

    def __init__(self, module: nn.Module, rows: int, change: Change) -> None:
        super().__init__()
        self.module, self.rows, self.change = module, rows, change
        self.count = 0
        self.running: list[str] = []
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []
        self.handles: list[Any] = []

    def __enter__(self) -> AttentionTap:
        for name, part in self.module.named_modules():
            self.handles.append(part.register_forward_pre_hook(partial(self._enter, name)))
            self.handles.append(part.register_forward_hook(self._leave, always_call=True))
        return super().__enter__()

    def __exit__(self, *fault: Any) -> None:
        super().__exit__(*fault)
        for handle in self.handles:
            handle.remove()

    def _enter(self, name: str, *_: Any) -> None:
        self.running.append(name)

    def _leave(self, *_: Any) -> None:
        self.running.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _FUSED:
            return self._fused(func, args, kwargs)
        if func in _SOFTMAX:
            return self._softmax(func, args, kwargs)
        if func is F.multi_head_attention_forward:  # within it this mode is off: it finds the fused function by name
            with mock.patch.object(F, "scaled_dot_product_attention", self._fused_inside):
                return func(*args, **kwargs)
        output = func(*args, **kwargs)
        operands = _read_operands(func, args, kwargs)
        if operands is not None:
            self.products = [*self.products[1 - _KEPT :], (*operands, output)]
        return output

    def _softmax(self, func: Any, args: Any, kwargs: Any) -> Any:
        logits = args[0] if args else kwargs["input"]
        factors = self._find_factors(logits)
        if factors is None:
            return func(*args, **kwargs)
        q, k = factors
        changed = self._ask(q, k, logits.reshape(*q.shape[:3], k.shape[2]))
        if changed is None:
            return func(*args, **kwargs)
        named = {name: value for name, value in kwargs.items() if name != "input"}
        return func(changed.reshape(logits.shape).to(logits.dtype), *args[1:], **named)

    def _find_factors(self, logits: Tensor) -> tuple[Tensor, Tensor] | None:
        """The queries and keys whose product was last made in the shape of the logits; None if there are none."""
        if logits.dim() not in (3, 4):
            return None
        for index in reversed(range(len(self.products))):
            q, k, product = self.products[index]
            if product.shape[-2:] == logits.shape[-2:] and product.numel() == logits.numel():
                self.products = []
                return self._heads(q, k)
        return None

    def _heads(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = (x.reshape(self.rows, -1, *x.shape[-2:]) for x in (q, k))
        return q, k.repeat_interleave(q.shape[1] // k.shape[1], 1)

    def _fused_inside(self, *args: Any, **kwargs: Any) -> Any:
        return self._fused(_FUSED, args, kwargs)

    def _fused(self, func: Any, args: Any, kwargs: Any) -> Any:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        q, k = self._heads(arguments["query"], arguments["key"])
        scale = arguments.get("scale") or 1 / math.sqrt(q.shape[-1])
        logits = add_mask(q @ k.mT * scale, arguments.get("attn_mask"), arguments.get("is_causal", False))
        changed = self._ask(q, k, logits)
        if changed is None:
            return func(*args, **kwargs)
        value = arguments["value"].repeat_interleave(q.shape[1] // arguments["value"].shape[1], 1)
        return (changed.softmax(-1) @ value).to(value.dtype)

    def _ask(self, q: Tensor, k: Tensor, logits: Tensor) -> Tensor | None:
        name = self.running[-1] if self.running else ""
        self.count += 1
        return self.change(self.count - 1, Attention(name, q, k, logits))


def add_mask(scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return the logits of the fused function: a mask of truth values or numbers, or the causal one."""
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return (scores + mask).clamp(min=torch.finfo(scores.dtype).min)


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
    inputs, _, result = equation.replace(" ", "").partition("->")
    left, _, right = inputs.partition(",")
    shared = "".join(axis for axis in left if axis not in result)
    if len(result) != 4 or len(shared) != 1 or not set(result[:2]) <= set(left) & set(right):
        return None
    if result[2] in right or result[3] in left:
        return None
    queries, keys = result[:2] + result[2] + shared, result[:2] + result[3] + shared
    return torch.einsum(f"{left}->{queries}", first), torch.einsum(f"{right}->{keys}", second)
