"""Read attention at the softmax, in classes that do not use the attention interface of ``transformers``."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from clockhands.inspection.reading.computed_attention import ComputedAttention, Receiver, find_mask
from clockhands.shapes import Tensor


class RunningModules:
    """Keeps the ``modules`` that are running, innermost last: a softmax can be traced to its attention layer.

    Modules without parameters are left out: an ``nn.Softmax`` of an attention layer would be innermost in its place.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.modules: list[nn.Module] = []
        self.handles: list[RemovableHandle] = []

    def __enter__(self) -> RunningModules:
        for module in self.model.modules():
            if any(True for _ in module.parameters()):
                self.handles.append(module.register_forward_pre_hook(self._enter))
                self.handles.append(module.register_forward_hook(self._leave, always_call=True))
        return self

    def _enter(self, module: nn.Module, args: object) -> None:
        self.modules.append(module)

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        self.modules.pop()

    def __exit__(self, *fault: object) -> None:
        for handle in self.handles:
            handle.remove()


_PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
_PRODUCTS_WITH_SUMMAND = {torch.baddbmm, Tensor.baddbmm}
_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}


MOST_PRODUCTS = 8
"""Matrix products of a module that are kept until its softmax; that of queries and keys is among the first."""


class SoftmaxTap(TorchFunctionMode):
    """Keeps the first matrix products of each module until its softmax; the first of the softmax's shape is q·k.

    While it is entered, PyTorch hands it every function that the model calls.
    """

    def __init__(self, running: RunningModules, receive: Receiver) -> None:
        super().__init__()
        self.running = running
        self.receive = receive
        self.operands: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if not self.running.modules:
            return output
        if func is F.scaled_dot_product_attention:
            self._receive_fused(*args, **kwargs)
        elif func in _SOFTMAX:
            self._receive_softmax(args[0] if args else kwargs["input"], output)
        elif len(self.operands.get(self.running.modules[-1], ())) < MOST_PRODUCTS:
            operands = _read_operands(func, args, kwargs, output)
            if operands is not None:
                self.operands.setdefault(self.running.modules[-1], []).append(operands)
        return output

    def _receive_softmax(self, logits: Tensor, weights: Tensor) -> None:
        """Hand on the attention whose logits entered a softmax, if a product of the running module has its shape."""
        products = self.operands.get(self.running.modules[-1], [])
        if weights.ndim not in (3, 4):
            return  # no attention: some convolutions apply a softmax to their weights
        operands = next((pair for pair in products if weights.shape[-2:] == _get_logits_shape(pair)), None)
        if operands is None:
            return
        del self.operands[self.running.modules[-1]]  # a module that runs twice multiplies again before its next softmax
        if weights.ndim == 3:
            heads = _count_heads(self.running.modules[-1])
            if not heads or len(weights) % heads:
                return
            logits, weights = (x.unflatten(0, (-1, heads)) for x in (logits, weights))
        batch, heads = weights.shape[:2]
        q, k = (_split_heads(operand, batch, heads) for operand in operands)
        computed = ComputedAttention(
            self.running.modules[-1], q, k, logits.to(q.dtype), weights.to(q.dtype), find_mask(logits)
        )
        self.receive(computed)

    def _receive_fused(
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
        """Hand on the attention of PyTorch's fused function, computed again with its arguments."""
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        mask = attn_mask
        if is_causal:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, device=q.device, dtype=q.dtype).masked_fill(~mask, -torch.inf)
        logits = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        logits = logits if mask is None else logits + mask
        weights = logits.softmax(dim=-1)
        self.receive(ComputedAttention(self.running.modules[-1], q, k, logits, weights, find_mask(logits)))


def _count_heads(module: nn.Module) -> int:
    """Return how many heads share the first axis with the texts, by an attribute of the module; 0 without one."""
    names = ("num_heads", "n_heads", "num_attention_heads", "n_head")
    return next((count for name in names if isinstance(count := getattr(module, name, None), int)), 0)


def _get_logits_shape(operands: tuple[Tensor, Tensor]) -> tuple[int, int]:
    """Return the last two axes, S × T, of the logits of queries and keys."""
    return operands[0].shape[-2], operands[1].shape[-2]


def _split_heads(x: Tensor, batch: int, heads: int) -> Tensor:
    """Return batch and heads as two axes; heads that share their keys get a copy each."""
    x = x.reshape(batch, -1, *x.shape[-2:])
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def _read_operands(func: Any, args: Any, kwargs: Any, output: Any) -> tuple[Tensor, Tensor] | None:
    """Return queries [.., S, K] and keys [.., T, K] of a product that could be their logits; None for others."""
    if func in _PRODUCTS and len(args) == 2 and args[0].ndim == args[1].ndim >= 3:
        return args[0], args[1].transpose(-1, -2)
    if func in _PRODUCTS_WITH_SUMMAND:
        first, second = kwargs.get("batch1"), kwargs.get("batch2")
        first, second = (args[1], args[2]) if first is None or second is None else (first, second)
        return first, second.transpose(-1, -2)
    if func is torch.einsum and len(args) == 3 and output.ndim == 4 == args[1].ndim == args[2].ndim:
        return _read_einsum(*args)
    return None


def _read_einsum(equation: str, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the operands of an equation such as ``ibnd,jbnd->bnij`` as queries and keys; None for any other."""
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:
        return None  # the axes of the result are then implicit
    left, right = inputs.split(",")
    shared = "".join(axis for axis in left if axis not in result)
    if result[2] in right or result[3] in left or not set(result[:2]) <= set(left) & set(right):
        return None
    queries, keys = result[:2] + result[2] + shared, result[:2] + result[3] + shared
    return torch.einsum(f"{left}->{queries}", first), torch.einsum(f"{right}->{keys}", second)
