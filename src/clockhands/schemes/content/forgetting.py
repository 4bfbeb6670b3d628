"""Forgetting attention: each token says how much of everything before it is to be forgotten."""

from __future__ import annotations

from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.schemes.content.running_sum import accumulate, subtract_sums
from clockhands.schemes.scheme import AttentionInputs, Bias, Declares, Located, Places, QueryPositions, Scheme, States


@final
class Forgetting(Scheme):
    """The Forgetting Transformer (Lin et al. 2025, equation 5) and, up to a sign, Cable (2025).

    A token's coordinate is c_i = Σ_{l<=i} ln f_l, summed in float64 and kept as two float32 parts, and the logit gains
    c_i - c_j = Σ_{l=j+1..i} ln f_l. Coordinates are cached with the keys, so that a step needs only the newest gate.

    Args:
        d_model: width of the layer's input, which the gates read.
        num_heads: H, one gate each.
        gate: ``forget``: f = σ(w·x + b); ``cable``: ln f = -softplus(w·x), which is ln σ(-w·x), without b.
        start: where b begins; 5 (x-transformers) forgets next to nothing, 0 (the authors) half at every token.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Forgetting
        >>> x, pos = torch.randn(1, 3, 8), torch.tensor([[0, 1, 2]])
        >>> Forgetting(d_model=8, num_heads=2).locate(x, pos, None).shape
        torch.Size([1, 2, 3, 2])
    """

    equation = r"\ell_{ij} \mathrel{+}= \sum_{l=j+1}^{i} \log f_l, \quad f_l = \sigma(w_h \cdot x_l + b_h)"
    source = "Lin et al. 2025, section 3; Cable 2025"
    peers = ("x-transformers DataDependentAlibi", "flash-linear-attention forgetting_attn")
    per_layer = True
    queries_share_bias_row = True

    def __init__(
        self, d_model: int, num_heads: int, *, gate: Literal["forget", "cable"] = "forget", start: float = 5.0
    ) -> None:
        super().__init__()
        self.start = start
        self.sign = 1.0 if gate == "forget" else -1.0
        self.gate_HD = nn.Parameter(torch.empty(num_heads, d_model))
        self.start_H = nn.Parameter(torch.empty(num_heads)) if gate == "forget" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.gate_HD, std=0.02)
        if self.start_H is not None:
            self.start_H.fill_(self.start)

    declares = Declares(translation_invariant=True, causal_only=True, real_valued=True, axes=None)

    def locate(self, x_BSD: States, pos: QueryPositions, past_BHTA: Places | None) -> Located:
        """Return the sums of the gates' logarithms, as two float32 parts: [B, H, S, 2]."""
        start = None if self.start_H is None else self.start_H.float()
        open_BSH = F.linear(x_BSD.float(), self.gate_HD.float(), start)
        # ln σ without σ: far below 0 the gate itself would be rounded to 0.
        step_BHS = F.logsigmoid(self.sign * open_BSH).transpose(1, 2)
        return accumulate(step_BHS[..., None], past_BHTA)

    def bias(self, at: AttentionInputs) -> Bias:
        # ln Π f = Σ ln f: what lies between two tokens is the difference of their running sums.
        return subtract_sums(at.qpos, at.kpos)
