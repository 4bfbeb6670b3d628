"""Stick-breaking attention: the nearest keys take their share first, and what is left goes on to the left."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F

from clockhands.schemes.frequencies import single_axis
from clockhands.schemes.scheme import Declares, KeyPositions, Positions, Scheme
from clockhands.shapes import Float, Tensor


@final
class StickBreaking(Scheme):
    """Stick-breaking attention (Tan et al. 2025, equations 1 and 2): α_ij = σ(z_ij)·Π_{j<l<i} (1 - σ(z_il)).

    It takes the place of the softmax; weights need not sum to 1. There are no parameters: order alone is the position.

    Args:
        attend_current: whether a token may take from itself, as the first; the authors leave it out, so that the first
            token of a text receives nothing.
    """

    equation = r"\alpha_{ij} = \sigma(z_{ij}) \prod_{j < l < i} (1 - \sigma(z_{il}))"
    source = "Tan et al. 2025, section 2"
    peers = ("flash-linear-attention stickbreaking_attn",)

    def __init__(self, *, attend_current: bool = False) -> None:
        super().__init__()
        self.attend_current = attend_current

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, causal_only=True, real_valued=True)

    def weigh(
        self, logits_BHST: Float[Tensor, "B H S T"], qpos_BS: Positions, kpos_BT: KeyPositions
    ) -> Float[Tensor, "B H S T"]:
        """Products as sums of logarithms, from the query backwards; a hidden key takes nothing and lets all pass."""
        q_at, k_at = (single_axis(pos, "stick-breaking") for pos in (qpos_BS, kpos_BT))
        hidden = logits_BHST == -torch.inf
        if not self.attend_current:
            hidden = hidden | (q_at[:, None, :, None] == k_at[:, None, None, :])
        logits = logits_BHST.masked_fill(hidden, 0.0)
        left_BHST = F.logsigmoid(-logits).masked_fill(hidden, 0.0)
        between_BHST = left_BHST.flip(-1).cumsum(-1).flip(-1) - left_BHST
        return torch.exp(F.logsigmoid(logits) + between_BHST).masked_fill(hidden, 0.0)
