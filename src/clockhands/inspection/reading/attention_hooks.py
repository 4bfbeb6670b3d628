"""Read every attention of a model while it runs, and hand it to a callback as a ``ComputedAttention``.

Models of this project record it themselves. Models of ``transformers`` are read at its attention interface, and those
without the interface at their softmax. While they are read they run their own eager code; where one calls PyTorch's
fused function all the same, its weights are computed again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from clockhands.attention import RecordedAttention, is_installed, record
from clockhands.errors import CheckpointError
from clockhands.model.attention import Attention
from clockhands.model.stack import Stack
from clockhands.models.tap import Attention as TappedAttention
from clockhands.models.tap import AttentionTap, RunningModules
from clockhands.shapes import Bool, Float, Tensor

MASK_LOGIT = -3e4
"""Logits below this are masks: no real logit comes near."""
MASK_GAP = 5e3
"""A key whose logit lies this far below the largest of its query is masked: its weight, exp(-5000), is zero in any
precision. openai-gpt writes its masks as -10,000, which ``MASK_LOGIT`` alone would take for a logit."""


def _find_mask(logits_BHST: Float[Tensor, "... S T"]) -> Bool[Tensor, "... S T"]:
    """Tell which keys every query may attend to, from logits (or from a mask that is added to them)."""
    largest = logits_BHST.amax(-1, keepdim=True).float()
    return (logits_BHST > MASK_LOGIT) & (logits_BHST > largest - MASK_GAP)


@dataclass(frozen=True)
class ComputedAttention:
    """What one attention layer computed for one batch.

    ``q`` and ``k`` are the factors of the product: after rotation and normalisation, with key heads repeated for their
    query heads. ``logits`` are those before a soft cap; where ``mask`` is False they mean nothing, and may hold what
    masks write there. ``bias`` is what was added to ``scale * q·k``. Both ``scale`` and ``bias`` are None where only
    the softmax was seen: the code that applied them was not. ``softcap`` is the bound c of logits that are capped to
    c · tanh(logit / c) before the softmax; None where they are not.
    """

    module: nn.Module
    q_BHSK: Float[Tensor, "B H S K"]
    k_BHTK: Float[Tensor, "B H T K"]
    logits_BHST: Float[Tensor, "B H S T"]
    weights_BHST: Float[Tensor, "B H S T"]
    mask_BHST: Bool[Tensor, "B H S T"]
    scale: float | None = None
    bias_BHST: Float[Tensor, "B H S T"] | None = None
    softcap: float | None = None

    def mark_ordinary_pairs(self, ordinary_T: Bool[Tensor, " T"]) -> Bool[Tensor, "B H S T"]:
        """Mark the pairs of an ordinary query and an ordinary key that it may attend to."""
        ordinary = ordinary_T.to(self.mask_BHST.device)
        return self.mask_BHST & ordinary[:, None] & ordinary

    def take_first(self, count: int) -> ComputedAttention:
        """Return the attention of the first texts."""
        tensors: dict[str, Any] = {
            name: value[:count] for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **tensors)


Receiver = Callable[[ComputedAttention], None] | None
"""A function that is called with every attention that is read. None: nothing is read, and the model computes attention
in the same way as when somebody reads it."""


INTERFACE_NAME = "clockhands"
"""The name under which our attention function is registered with transformers."""


@contextlib.contextmanager
def listen(model: nn.Module, receive: Receiver, within: nn.Module | None = None) -> Iterator[None]:
    """Inside the block, hand every attention that the model computes to ``receive``.

    ``within``: the only module that is going to run, for replays of one layer. Raises CheckpointError, from the forward
    pass, for an attention whose logits cannot be rebuilt.
    """
    if isinstance(model, Stack) or is_installed(model):
        if within is not None:
            with record(partial(_receive_clockhands, within, receive)):
                yield
            return

        # Of the encoder that a decoder runs with, no module is running here, and its attention is not handed on.
        def hand_on(computed: RecordedAttention) -> None:
            _receive_clockhands(running.modules[-1][1] if running.modules else None, receive, computed)

        with RunningModules(model) as running, record(hand_on):
            yield
    elif getattr(type(model), "_can_set_attn_implementation", lambda: False)():
        with _use_interface(model, receive):
            yield
    else:

        def read(_: int, attention: TappedAttention) -> None:
            if receive is not None:
                logits, q, k = attention.logits_BHST, attention.q_BHSK, attention.k_BHTK
                scores = F.pad(logits, (0, int(attention.sink)))
                weights = scores.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(q.dtype)
                weights = weights[..., : k.shape[2]]
                receive(ComputedAttention(attention.module, q, k, logits.to(q.dtype), weights, _find_mask(logits)))

        with _use_eager_code(getattr(model, "config", None)), AttentionTap(within or model, None, read):
            yield


def _receive_clockhands(module: nn.Module | None, receive: Receiver, computed: RecordedAttention) -> None:
    """Hand on an attention of our own models, or of one in which a scheme is installed, that ``module`` computed.

    Nothing is handed on if that is no attention module.
    """
    if module is None or receive is None or not (isinstance(module, Attention) or is_installed(module)):
        return
    products = computed.q_BHSK @ computed.k_BHTK.transpose(-1, -2) * computed.scale
    allowed = computed.mask_BHST & _find_mask(computed.logits_BHST)
    bias = torch.zeros_like(products) if computed.bias_BHST is None else computed.bias_BHST.to(products.dtype)
    # A scheme with this hook rewrites rows of logits: the logits less the products count as added.
    if "logits" in computed.scheme.active_hooks():
        bias = computed.logits_BHST - products
    receive(
        ComputedAttention(
            module, computed.q_BHSK, computed.k_BHTK, computed.logits_BHST, computed.weights_BHST,
            mask_BHST=allowed.expand(products.shape),
            scale=computed.scale,
            bias_BHST=torch.where(allowed, bias, 0.0).expand(products.shape),
        )
    )  # fmt: skip


@contextlib.contextmanager
def _use_eager_code(config: Any) -> Iterator[None]:
    """Inside the block, a class without the interface runs its eager code, whose softmax can be seen.

    Falcon with ALiBi is left as it is: its eager code adds the slopes twice (once in the mask), its fused code once, as
    published.
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
"""The receivers, innermost last, each with the modules that it asked about: an encoder shares its configuration with
its decoder, so that it computes attention by our function too while the decoder is read."""


@contextlib.contextmanager
def _use_interface(model: Any, receive: Receiver) -> Iterator[None]:
    """Inside the block, the model's attention function is ours, which hands on what it computes."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(INTERFACE_NAME, _attend)
    # Without a mask function of the same name the models would be given no mask at all.
    ALL_MASK_ATTENTION_FUNCTIONS.register(INTERFACE_NAME, eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(INTERFACE_NAME)
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
    """Compute attention for ``transformers`` by the class's own eager function, and hand it to the last receiver.

    Raises CheckpointError where a class has no such function.
    """
    # It is defined beside the class of the module, or beside one that this is derived from.
    homes = (sys.modules.get(cls.__module__) for cls in type(module).__mro__)
    functions = (getattr(home, "eager_attention_forward", None) for home in homes)
    eager: Any = next(filter(None, functions), None)
    if eager is None:
        raise CheckpointError(
            f"{type(module).__name__} asks for the attention function of transformers, and no eager_attention_forward "
            "is defined beside it, with which inspect could compute it"
        )
    output, weights = eager(module, query, key, value, attention_mask, **options)
    receive, listened = _receivers[-1]
    if receive is not None and module in listened:
        receive(_rebuild_attention(module, query, key, attention_mask, weights, options))
    return output, weights


def _rebuild_attention(
    module: nn.Module, q: Tensor, k: Tensor, mask: Tensor | None, weights: Tensor, options: dict[str, Any]
) -> ComputedAttention:
    """Rebuild the logits from what the attention function was given. Raises CheckpointError where that fails."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scale = options.get("scaling")
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    added = torch.zeros((), dtype=q.dtype, device=q.device)
    allowed = torch.ones(1, dtype=torch.bool, device=q.device)
    if mask is not None:
        mask = mask[..., : k.shape[2]]
        allowed = mask if mask.dtype == torch.bool else _find_mask(mask)
        added = added if mask.dtype == torch.bool else torch.where(allowed, mask, 0.0)
    position_bias = options.get("position_bias")
    if position_bias is not None:
        added = added + position_bias[..., : k.shape[2]]
    products = q @ k.transpose(-1, -2) * scale
    computed = ComputedAttention(
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
    _check_weights(computed, options.get("s_aux", getattr(module, "sinks", None)))
    return computed


def _check_weights(computed: ComputedAttention, sinks: Tensor | None) -> None:
    """Raise CheckpointError unless the softmax of the rebuilt logits gives the weights that the model computed.

    ``sinks`` holds one learned logit a head that takes weight and belongs to no key (GPT-OSS); None without.
    """
    logits = computed.logits_BHST
    if computed.softcap is not None:
        logits = torch.tanh(logits / computed.softcap) * computed.softcap
    logits = logits.masked_fill(~computed.mask_BHST, torch.finfo(logits.dtype).min).float()
    if sinks is not None:
        column = sinks.float().reshape(1, -1, 1, 1).expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, column], dim=-1)
    ours = logits.softmax(dim=-1)[..., : computed.weights_BHST.shape[-1]]
    # Half precision rounds a logit of 10 by up to 0.03 (bfloat16), and its weight by that part of itself.
    tolerance = 1e-4 if computed.weights_BHST.dtype in (torch.float32, torch.float64) else 3e-2
    gap = float((ours - computed.weights_BHST.float()).abs().max())
    if not gap <= tolerance:  # NaN is refused too
        raise CheckpointError(
            f"{type(computed.module).__name__} computes its attention in a way that inspect does not understand: "
            f"weights rebuilt from queries and keys differ by {gap:.2g}. Please report this class"
        )
