"""Stick-breaking attention: the nearest keys take their share first, and what is left goes on to the left."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F

from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.scheme import AttentionInputs, Declares, Logits, Scheme


@final
class StickBreaking(Scheme):
    """Stick-breaking attention (Tan et al. 2025, equations 1 and 2): α_ij = σ(z_ij)·Π_{j<l<i} (1 - σ(z_il)).

    It takes the place of the softmax; weights need not sum to 1. There are no parameters: order alone is the position.

    Args:
        attend_current: whether a token may take from itself, as the first; the authors leave it out, so that the first
            token of a text receives nothing.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, StickBreaking
        >>> q, k = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 3, 4)
        >>> at = AttentionInputs(q, k, torch.tensor([[2]]), torch.tensor([[0, 1, 2]]))
        >>> StickBreaking().weigh(torch.zeros(1, 1, 1, 3), at)
        tensor([[[[0.2500, 0.5000, 0.0000]]]])
    """

    equation = r"\alpha_{ij} = \sigma(z_{ij}) \prod_{j < l < i} (1 - \sigma(z_{il}))"
    source = "Tan et al. 2025, section 2"
    peers = ("flash-linear-attention stickbreaking_attn",)

    def __init__(self, *, attend_current: bool = False) -> None:
        super().__init__()
        self.attend_current = attend_current

    declares = Declares(translation_invariant=True, causal_only=True, real_valued=True)

    def weigh(self, logits_BHST: Logits, at: AttentionInputs) -> Logits:
        """Return the weights, from the query backwards: [B, H, S, T]; a masked key takes nothing and lets all pass."""
        q_at, k_at = take_axis(at.qpos, "stick-breaking"), take_axis(at.kpos, "stick-breaking")
        masked = logits_BHST == -torch.inf
        if not self.attend_current:
            masked = masked | (q_at[:, None, :, None] == k_at[:, None, None, :])
        logits = logits_BHST.masked_fill(masked, 0.0)
        # ln(1 - σ(ℓ)): what a key leaves of the stick.
        left_BHST = F.logsigmoid(-logits).masked_fill(masked, 0.0)
        # The sum over the keys between this one and the query, from the right.
        between_BHST = left_BHST.flip(-1).cumsum(-1).flip(-1) - left_BHST
        # σ(z)·Π (1 - σ(z)) as the exponential of a sum of logarithms: a product of many factors would be rounded to 0.
        return torch.exp(F.logsigmoid(logits) + between_BHST).masked_fill(masked, 0.0)
