"""Where attention is read: the attention interface of ``transformers``, or a tap on the softmax where there is none.

Both hand every attention computed inside them to a callback as an ``AttentionCall``. Nothing is changed: the model's
own attention function runs, and what it returns goes on through the model.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from clockhands.attention import Attended, record
from clockhands.errors import CheckpointError
from clockhands.inspection.reading.attention_call import AttentionCall, Receiver, find_mask, ignore
from clockhands.inspection.reading.softmax_tap import ModuleStack, SoftmaxTap
from clockhands.model.attention import Attention
from clockhands.model.stack import Stack
from clockhands.shapes import Tensor

NAME = "clockhands"


@contextlib.contextmanager
def listen(model: nn.Module, receive: Receiver, within: nn.Module | None = None) -> Iterator[None]:
    """Hand every attention inside the block to ``receive``, through the best seam that the model's class offers.

    ``within`` narrows the tap to one module, where only that one is going to run.
    """
    if isinstance(model, Stack):
        with ModuleStack(within or model) as stack, record(lambda heard: _own(stack, heard, receive)):
            yield
    elif getattr(type(model), "_can_set_attn_implementation", lambda: False)():
        with _interface(model, receive):
            yield
    else:
        with (
            _plain_code(getattr(model, "config", None)),
            ModuleStack(within or model) as stack,
            SoftmaxTap(stack, receive),
        ):
            yield


def _own(stack: ModuleStack, heard: Attended, receive: Receiver) -> None:
    """An attention of our own models; an encoder that is read on the way to a decoder is not listened to."""
    module = stack.running[-1] if stack.running else None
    if isinstance(module, Attention) and receive is not ignore:
        products = heard.q_BHSK @ heard.k_BHTK.transpose(-1, -2) * heard.scale
        allowed = heard.mask_BHST & find_mask(heard.logits_BHST)
        bias = torch.zeros_like(products) if heard.bias_BHST is None else heard.bias_BHST.to(products.dtype)
        if "logits" in heard.scheme.active_hooks():  # whole rows rewritten: all that was made of the products
            bias = heard.logits_BHST - products
        receive(
            AttentionCall(
                module=module,
                q_BHSK=heard.q_BHSK,
                k_BHTK=heard.k_BHTK,
                logits_BHST=heard.logits_BHST,
                weights_BHST=heard.weights_BHST,
                mask_BHST=allowed.expand(products.shape),
                scale=heard.scale,
                bias_BHST=torch.where(allowed, bias, 0.0).expand(products.shape),
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


_receivers: list[tuple[Receiver, frozenset[nn.Module]]] = []
"""Who listens, innermost last, and to which modules: the encoder shares its configuration with the decoder."""


@contextlib.contextmanager
def _interface(model: Any, receive: Receiver) -> Iterator[None]:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    # Without a mask function of the same name the models would be given no mask at all.
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    _receivers.append((receive, frozenset(model.modules())))
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
    receive, heard = _receivers[-1]
    if receive is not ignore and module in heard:
        receive(_overheard(module, query, key, attention_mask, weights, options))
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
        allowed = mask if mask.dtype == torch.bool else find_mask(mask)
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
        mask_BHST=allowed.expand(products.shape),
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
    logits = logits.masked_fill(~call.mask_BHST, torch.finfo(logits.dtype).min).float()
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
