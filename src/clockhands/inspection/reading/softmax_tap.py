"""The softmax tap: reads attention out of classes that do not use the attention interface of ``transformers``."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from clockhands.inspection.reading.attention_call import AttentionCall, Receiver, find_mask
from clockhands.shapes import Tensor


class ModuleStack:
    """Knows which modules are running, so that a softmax can be traced to the attention layer that called it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.running: list[nn.Module] = []
        self.handles: list[Any] = []

    def __enter__(self) -> ModuleStack:
        for module in self.model.modules():
            if any(True for _ in module.parameters()):
                self.handles.append(module.register_forward_pre_hook(self._enter))
                self.handles.append(module.register_forward_hook(self._leave, always_call=True))
        return self

    def _enter(self, module: nn.Module, args: Any) -> None:
        self.running.append(module)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self.running.pop()

    def __exit__(self, *fault: object) -> None:
        for handle in self.handles:
            handle.remove()


_PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
_SHIFTED_PRODUCTS = {torch.baddbmm, Tensor.baddbmm}
_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}


MOST_PRODUCTS = 8
"""Products kept of a module until a softmax comes; the keys and queries are among the first."""


class SoftmaxTap(TorchFunctionMode):
    """Remembers the first products inside each layer; when a softmax comes, reports the first that has its shape."""

    def __init__(self, stack: ModuleStack, receive: Receiver) -> None:
        super().__init__()
        self.stack = stack
        self.receive = receive
        self.operands: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if not self.stack.running:
            return output
        if func is F.scaled_dot_product_attention:
            self._fused(*args, **kwargs)
        elif func in _SOFTMAX:
            self._softmax(args[0] if args else kwargs["input"], output)
        elif len(self.operands.get(self.stack.running[-1], ())) < MOST_PRODUCTS:
            operands = _operands(func, args, kwargs, output)
            if operands is not None:
                self.operands.setdefault(self.stack.running[-1], []).append(operands)
        return output

    def _softmax(self, logits: Tensor, weights: Tensor) -> None:
        products = self.operands.get(self.stack.running[-1], [])
        if weights.ndim not in (3, 4):
            return  # of something else, such as kernels of a convolution
        operands = next((pair for pair in products if weights.shape[-2:] == _square(pair)), None)
        if operands is None:
            return
        del self.operands[self.stack.running[-1]]
        if weights.ndim == 3:
            heads = _heads(self.stack.running[-1])
            if not heads or len(weights) % heads:
                return
            logits, weights = (x.unflatten(0, (-1, heads)) for x in (logits, weights))
        batch, heads = weights.shape[:2]
        q, k = (_by_head(operand, batch, heads) for operand in operands)
        call = AttentionCall(self.stack.running[-1], q, k, logits.to(q.dtype), weights.to(q.dtype), find_mask(logits))
        self.receive(call)

    def _fused(
        self,
        q: Tensor,
        k: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **_: Any,
    ) -> None:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        mask = attn_mask
        if is_causal:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, device=q.device, dtype=q.dtype).masked_fill(~mask, -torch.inf)
        logits = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        logits = logits if mask is None else logits + mask
        weights = logits.softmax(dim=-1)
        self.receive(AttentionCall(self.stack.running[-1], q, k, logits, weights, find_mask(logits)))


def _heads(module: nn.Module) -> int:
    """How many heads share the first axis with the texts, as the module itself has it; 0 if it does not say."""
    names = ("num_heads", "n_heads", "num_attention_heads", "n_head")
    return next((count for name in names if isinstance(count := getattr(module, name, None), int)), 0)


def _square(operands: tuple[Tensor, Tensor]) -> tuple[int, int]:
    return operands[0].shape[-2], operands[1].shape[-2]


def _by_head(x: Tensor, batch: int, heads: int) -> Tensor:
    """Batch and heads as two axes; heads that share their keys get a copy each."""
    x = x.reshape(batch, -1, *x.shape[-2:])
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def _operands(func: Any, args: Any, kwargs: Any, output: Any) -> tuple[Tensor, Tensor] | None:
    """Queries [.., S, K] and keys [.., T, K] of a product that could be their logits, else None."""
    if func in _PRODUCTS and len(args) == 2 and args[0].ndim == args[1].ndim >= 3:
        return args[0], args[1].transpose(-1, -2)
    if func in _SHIFTED_PRODUCTS:
        first, second = kwargs.get("batch1"), kwargs.get("batch2")
        first, second = (args[1], args[2]) if first is None or second is None else (first, second)
        return first, second.transpose(-1, -2)
    if func is torch.einsum and len(args) == 3 and output.ndim == 4 == args[1].ndim == args[2].ndim:
        return _einsum_operands(*args)
    return None


def _einsum_operands(equation: str, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor] | None:
    """``ibnd,jbnd->bnij`` read as batched queries and keys."""
    inputs, result = equation.replace(" ", "").split("->")
    left, right = inputs.split(",")
    shared = "".join(axis for axis in left if axis not in result)
    if result[2] in right or result[3] in left or not set(result[:2]) <= set(left) & set(right):
        return None
    queries, keys = result[:2] + result[2] + shared, result[:2] + result[3] + shared
    return torch.einsum(f"{left}->{queries}", first), torch.einsum(f"{right}->{keys}", second)
