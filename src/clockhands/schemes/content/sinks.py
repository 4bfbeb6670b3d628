"""Attention sinks: a learned logit in every head that no key has, so that a head may attend to nothing."""

from __future__ import annotations

from typing import final

import torch
from torch import nn

from clockhands.schemes.absolute.none import NoPosition
from clockhands.schemes.scheme import AttentionInputs, Declares, Logits, Scheme
from clockhands.shapes import Float, Tensor


@final
class Sinks(Scheme):
    """A learned sink in the softmax of each head (gpt-oss, 2025), without any position.

    The weights of the keys sum to less than 1; what is missing goes to the sink, whose value is zero. With ``fixed`` it
    is the softmax plus one of Miller (2023), whose sink has the logit 0.

    Args:
        num_heads: H, one sink each.
        start: where the logits of the sinks begin.
        fixed: whether they stay there.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, Sinks
        >>> q, k = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 3, 4)
        >>> at = AttentionInputs(q, k, torch.tensor([[2]]), torch.tensor([[0, 1, 2]]))
        >>> Sinks(num_heads=1, start=0.0).weigh(torch.zeros(1, 1, 1, 3), at)
        tensor([[[[0.2500, 0.2500, 0.2500]]]], grad_fn=<SliceBackward0>)
    """

    equation = r"\alpha_{ij} = \frac{e^{\ell_{ij}}}{e^{s_h} + \sum_t e^{\ell_{it}}}"
    source = 'gpt-oss (OpenAI 2025), model code; Miller 2023, "Attention is off by one"; Xiao et al. 2024'
    peers = ("transformers GptOssAttention",)
    models = ("gpt-oss", "MiMo-V2", "Granite-SWA")
    per_layer = True

    def __init__(self, num_heads: int, *, start: float = 0.0, fixed: bool = False) -> None:
        super().__init__()
        self.start = start
        self.sink_H = nn.Parameter(torch.full((num_heads,), float(start)), requires_grad=not fixed)

    def reset_parameters(self) -> None:
        self.sink_H.fill_(self.start)

    declares = Declares(translation_invariant=True, real_valued=True, axes=None)

    def weigh(self, logits_BHST: Logits, at: AttentionInputs) -> Logits:
        """Return the softmax over the keys and the sink, without the sink: [B, H, S, T]."""
        return softmax_with_sinks(logits_BHST, self.sink_H)

    def split_sinks(self) -> tuple[Scheme, Float[Tensor, " H"]]:
        """Return a scheme that does nothing, since sinks are all there is, and their logits [H]."""
        return _NOTHING_ELSE, self.sink_H


def softmax_with_sinks(logits_BHST: Float[Tensor, "B H S T"], sink_H: Float[Tensor, " H"]) -> Float[Tensor, "B H S T"]:
    """Return the softmax over the keys and a sink of each head, without the sink: [B, H, S, T]."""
    # e^s joins the denominator as one more column, and the column is cut off again.
    sink_BHS1 = sink_H.to(logits_BHST.dtype)[:, None, None].expand(*logits_BHST.shape[:3], 1)
    return torch.softmax(torch.cat([logits_BHST, sink_BHS1], dim=-1), dim=-1)[..., :-1]


_NOTHING_ELSE = NoPosition()
