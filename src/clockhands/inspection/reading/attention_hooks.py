"""Read every attention of a model while it runs, and hand it to a callback as a ``ComputedAttention``.

Models of this project record it themselves; those of ``transformers`` run their eager code, and are read at its softmax
(``tap_attention``). Where one calls PyTorch's fused function all the same, its weights are computed again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from clockhands.attention import RecordedAttention, is_installed, record
from clockhands.model.attention import AttentionLayer
from clockhands.model.stack import Stack
from clockhands.models.tap import TappedAttention, follow_modules, tap_attention
from clockhands.shapes import Bool, Float, Tensor

MASK_LOGIT = -3e4
"""Logits below this are masks: no real logit comes near."""
MASK_GAP = 5e3
"""A key whose logit lies this far below the largest of its query is masked: its weight, exp(-5000), is zero in any
precision. openai-gpt writes its masks as -10,000, which ``MASK_LOGIT`` alone would take for a logit."""


def _find_mask(logits_BHST: Float[Tensor, "... S T"]) -> Bool[Tensor, "... S T"]:
    """Tell which keys every query may attend to, from its logits."""
    largest = logits_BHST.amax(-1, keepdim=True).float()
    return (logits_BHST > MASK_LOGIT) & (logits_BHST > largest - MASK_GAP)


@dataclass(frozen=True)
class ComputedAttention:
    """What one attention layer computed for one batch.

    ``q`` and ``k`` are the factors of the product: after rotation and normalisation, with key heads repeated for their
    query heads. ``logits`` are those before a soft cap; where ``mask`` is False they mean nothing, and may hold what
    masks write there. ``bias`` is what was added to ``scale * q·k``. Both ``scale`` and ``bias`` are None where only
    the softmax was seen: the code that applied them was not.
    """

    module: nn.Module
    q_BHSK: Float[Tensor, "B H S K"]
    k_BHTK: Float[Tensor, "B H T K"]
    logits_BHST: Float[Tensor, "B H S T"]
    weights_BHST: Float[Tensor, "B H S T"]
    mask_BHST: Bool[Tensor, "B H S T"]
    scale: float | None = None
    bias_BHST: Float[Tensor, "B H S T"] | None = None

    def mark_ordinary_pairs(self, ordinary_T: Bool[Tensor, " T"]) -> Bool[Tensor, "B H S T"]:
        """Mark the pairs of an ordinary query and an ordinary key that it may attend to."""
        ordinary = ordinary_T.to(self.mask_BHST.device)
        return self.mask_BHST & ordinary[:, None] & ordinary


Receiver = Callable[[ComputedAttention], None] | None
"""A function that is called with every attention that is read. None: nothing is read, and the model computes attention
in the same way as when somebody reads it."""


@contextlib.contextmanager
def listen(model: Any, receive: Receiver, within: nn.Module | None = None) -> Iterator[None]:
    """Inside the block, hand every attention that the model computes to ``receive``.

    ``within``: the only module that is going to run, for replays of one layer.
    """
    if isinstance(model, Stack) or is_installed(model):
        if within is not None:
            with record(partial(_receive_clockhands, within, receive)):
                yield
            return

        # Of the encoder that a decoder runs with, no module is running here, and its attention is not handed on.
        def hand_on(computed: RecordedAttention) -> None:
            _receive_clockhands(running[-1][1] if running else None, receive, computed)

        with follow_modules(model) as running, record(hand_on):
            yield
        return
    config = getattr(model, "config", None)
    before = getattr(config, "_attn_implementation", None)
    has_interface = getattr(type(model), "_can_set_attn_implementation", lambda: False)()
    choose = model.set_attn_implementation if has_interface else partial(setattr, config, "_attn_implementation")
    # Falcon with ALiBi keeps its fused code: its eager code adds the slopes twice (once in the mask).
    fixed = before is None or (config.model_type == "falcon" and config.alibi)  # type: ignore[union-attr]
    if not fixed:
        choose("eager")  # whose softmax can be seen
    try:
        with tap_attention(within or model, None, partial(_read_tapped, receive)):
            yield
    finally:
        if not fixed:
            choose(before)


def _receive_clockhands(module: nn.Module | None, receive: Receiver, computed: RecordedAttention) -> None:
    """Hand on an attention of our own models, or of one in which a scheme is installed, that ``module`` computed.

    Nothing is handed on if that is no attention module.
    """
    if module is None or receive is None or not (isinstance(module, AttentionLayer) or is_installed(module)):
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


def _read_tapped(receive: Receiver, index: int, attention: TappedAttention) -> None:
    """Hand on what entered a softmax with the weights that left it, the logits without a soft cap."""
    if receive is None:
        return
    module: Any = attention.module
    logits, q, k = attention.logits_BHST, attention.q_BHSK, attention.k_BHTK
    scores = F.pad(logits, (0, int(attention.sink)))
    weights = scores.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))[..., : k.shape[2]]
    mask, softcap = _find_mask(logits), getattr(module, "attn_logit_softcapping", None)
    if softcap:  # c · tanh(logit / c), of q·k and nothing else (Gemma 2): it is read before
        logits = q @ k.mT * module.scaling
    receive(ComputedAttention(module, q, k, logits.to(q.dtype), weights.to(q.dtype), mask))
