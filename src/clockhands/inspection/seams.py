"""Where attention is read: the attention interface of ``transformers``, or a tap on the softmax where there is none.

Both hand every attention computed inside them to a callback as an ``AttentionCall``. Nothing is changed: the model's
own attention function runs, and what it returns goes on through the model.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from clockhands.errors import CheckpointError
from clockhands.model.attention import SelfAttention
from clockhands.model.transformer import Stack
from clockhands.schemes.attend import Attended, recording
from clockhands.shapes import Bool, Float, Tensor

NAME = "clockhands"
MASKED = -3e4
"""Logits below this are masks: no family writes its masks above -65500, and no real logit comes near."""


@dataclass(frozen=True)
class AttentionCall:
    """What one attention layer computed for one batch.

    ``q`` and ``k`` are what is multiplied: after rotation and normalisation, key and value heads repeated.
    ``logits`` stand before soft cap and mask; ``bias`` is what was added to ``scale * q·k``. Where the tap saw the
    attention, ``scale`` is None, because it is buried in the code, and ``bias`` with it.
    """

    module: nn.Module
    q_BHSK: Float[Tensor, "B H S K"]
    k_BHTK: Float[Tensor, "B H T K"]
    logits_BHST: Float[Tensor, "B H S T"]
    weights_BHST: Float[Tensor, "B H S T"]
    allowed_BHST: Bool[Tensor, "B H S T"]
    scale: float | None = None
    bias_BHST: Float[Tensor, "B H S T"] | None = None
    softcap: float | None = None


Receiver = Callable[[AttentionCall], None]


def ignore(call: AttentionCall) -> None:
    """A receiver for when the model should run as it does while read, and nobody needs to read."""


@contextlib.contextmanager
def listening(model: nn.Module, receive: Receiver, within: nn.Module | None = None) -> Iterator[None]:
    """Hand every attention inside the block to ``receive``, through the best seam that the model's class offers.

    ``within`` narrows the tap to one module, where only that one is going to run.
    """
    if isinstance(model, Stack):
        with _ModuleStack(within or model) as stack, recording(lambda heard: _own(stack, heard, receive)):
            yield
    elif getattr(type(model), "_can_set_attn_implementation", lambda: False)():
        with _interface(model, receive):
            yield
    else:
        with (
            _plain_code(getattr(model, "config", None)),
            _ModuleStack(within or model) as stack,
            _SoftmaxTap(stack, receive),
        ):
            yield


def _own(stack: _ModuleStack, heard: Attended, receive: Receiver) -> None:
    """An attention of our own models; those across from decoder to encoder are left aside."""
    module = stack.running[-1]
    if isinstance(module, SelfAttention) and receive is not ignore:
        products = heard.q_BHSK @ heard.k_BHTK.transpose(-1, -2) * heard.scale
        bias = torch.zeros_like(products) if heard.bias_BHST is None else heard.bias_BHST.to(products.dtype)
        receive(
            AttentionCall(
                module=module,
                q_BHSK=heard.q_BHSK,
                k_BHTK=heard.k_BHTK,
                logits_BHST=products + bias,
                weights_BHST=heard.weights_BHST,
                allowed_BHST=heard.visible_BHST.expand(products.shape),
                scale=heard.scale,
                bias_BHST=bias.expand(products.shape),
            )
        )


@contextlib.contextmanager
def _plain_code(config: Any) -> Iterator[None]:
    """Let a class without the interface run its eager code, so that the tap sees it unfused.

    Not Falcon with ALiBi: its eager code adds the slopes twice (once in the mask), its fused code once, as published.
    """
    before = getattr(config, "_attn_implementation", None)
    if before is not None and not (config.model_type == "falcon" and config.alibi):
        config._attn_implementation = "eager"
    try:
        yield
    finally:
        if before is not None:
            config._attn_implementation = before


# --- the attention interface ---------------------------------------------------------------------------------------

_receivers: list[Receiver] = []


@contextlib.contextmanager
def _interface(model: Any, receive: Receiver) -> Iterator[None]:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    # Without a mask function of the same name the models would be given no mask at all.
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    _receivers.append(receive)
    try:
        yield
    finally:
        _receivers.pop()
        model.set_attn_implementation(before)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """The attention function given to ``transformers``: the class's own eager one, overheard."""
    eager = sys.modules[type(module).__module__].eager_attention_forward
    output, weights = eager(module, query, key, value, attention_mask, **options)
    if _receivers[-1] is not ignore:
        _receivers[-1](_overheard(module, query, key, attention_mask, weights, options))
    return output, weights


def _overheard(
    module: nn.Module, q: Tensor, k: Tensor, mask: Tensor | None, weights: Tensor, options: dict[str, Any]
) -> AttentionCall:
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scale = options.get("scaling")
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    added = torch.zeros((), dtype=q.dtype, device=q.device)
    allowed = torch.ones(1, dtype=torch.bool, device=q.device)
    if mask is not None:
        mask = mask[..., : k.shape[2]]
        allowed = mask if mask.dtype == torch.bool else mask > MASKED
        added = added if mask.dtype == torch.bool else torch.where(allowed, mask, 0.0)
    position_bias = options.get("position_bias")
    if position_bias is not None:
        added = added + position_bias[..., : k.shape[2]]
    products = q @ k.transpose(-1, -2) * scale
    call = AttentionCall(
        module=module,
        q_BHSK=q,
        k_BHTK=k,
        logits_BHST=products + added,
        weights_BHST=weights,
        allowed_BHST=allowed.expand(products.shape),
        scale=scale,
        bias_BHST=added.expand(products.shape),
        softcap=options.get("softcap"),
    )
    _check_understood(call, options.get("s_aux", getattr(module, "sinks", None)))
    return call


def _check_understood(call: AttentionCall, sinks: Tensor | None) -> None:
    """Our reading of the logits must give the weights that the model computed, or we have not understood the model."""
    logits = call.logits_BHST
    if call.softcap is not None:
        logits = torch.tanh(logits / call.softcap) * call.softcap
    logits = logits.masked_fill(~call.allowed_BHST, torch.finfo(logits.dtype).min).float()
    if sinks is not None:
        column = sinks.float().reshape(1, -1, 1, 1).expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, column], dim=-1)
    ours = logits.softmax(dim=-1)[..., : call.weights_BHST.shape[-1]]
    tolerance = 1e-4 if call.weights_BHST.dtype in (torch.float32, torch.float64) else 3e-2
    gap = float((ours - call.weights_BHST.float()).abs().max())
    if not gap <= tolerance:
        raise CheckpointError(
            f"{type(call.module).__name__} computes its attention in a way that inspect does not understand: weights "
            f"rebuilt from queries and keys differ by {gap:.2g}. Please report this class"
        )


# --- the softmax tap -----------------------------------------------------------------------------------------------


class _ModuleStack:
    """Knows which modules are running, so that a softmax can be traced to the attention layer that called it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.running: list[nn.Module] = []
        self.handles: list[Any] = []

    def __enter__(self) -> _ModuleStack:
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


class _SoftmaxTap(TorchFunctionMode):
    """Remembers the first product of queries and keys inside each layer and reports it when its softmax comes."""

    def __init__(self, stack: _ModuleStack, receive: Receiver) -> None:
        super().__init__()
        self.stack = stack
        self.receive = receive
        self.operands: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if not self.stack.running:
            return output
        if func is F.scaled_dot_product_attention:
            self._fused(*args, **kwargs)
        elif func in _SOFTMAX:
            self._softmax(args[0] if args else kwargs["input"], output)
        elif self.stack.running[-1] not in self.operands:
            operands = _operands(func, args, kwargs, output)
            if operands is not None:
                self.operands[self.stack.running[-1]] = operands
        return output

    def _softmax(self, logits: Tensor, weights: Tensor) -> None:
        operands = self.operands.pop(self.stack.running[-1], None)
        if operands is None or weights.ndim != 4 or weights.shape[-2:] != _square(operands):
            return
        batch, heads = weights.shape[:2]
        q, k = (_by_head(operand, batch, heads) for operand in operands)
        allowed = logits > MASKED
        call = AttentionCall(self.stack.running[-1], q, k, logits.to(q.dtype), weights.to(q.dtype), allowed)
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
        self.receive(AttentionCall(self.stack.running[-1], q, k, logits, weights, logits > MASKED))


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
