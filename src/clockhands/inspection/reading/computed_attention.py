"""What one attention layer computed, in one form for every way of reading it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from clockhands.shapes import Bool, Float, Tensor

MASK_LOGIT = -3e4
"""Logits below this are masks: no real logit comes near."""
MASK_GAP = 5e3
"""A key whose logit lies this far below the largest of its query is masked: its weight, exp(-5000), is zero in any
precision. openai-gpt writes its masks as -10,000, which ``MASK_LOGIT`` alone would take for a logit."""


def find_mask(logits_BHST: Float[Tensor, "... S T"]) -> Bool[Tensor, "... S T"]:
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


Receiver = Callable[[ComputedAttention], None]
"""A function that is called with every attention that is read."""


def ignore_attention(computed: ComputedAttention) -> None:
    """Stand for no receiver: the model then computes attention in the same way as when somebody reads it.

    ``attention_hooks`` compares with it by identity, and builds no ``ComputedAttention`` where it is the receiver.
    """
