"""RePo: every token places itself on the real line, and RoPE rotates by that place."""

from __future__ import annotations

from typing import final

import torch.nn.functional as F
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Count, Positive
from clockhands.schemes.frequencies import compute_angles, compute_frequencies
from clockhands.schemes.rotary.rotation import Layout, Rotary
from clockhands.schemes.scheme import Declares, Located, Places, QueryPositions, States
from clockhands.shapes import Float, Tensor


@final
class RePo(Rotary):
    """Context re-positioning (2025, arXiv 2512.14391): z = W_z(silu(W_g x) ⊙ W_c x), a real position for each head.

    No index enters at all. The authors use it from some layer up and RoPE below (a schedule of layers).

    Args:
        d_model: width of the layer's input.
        num_heads: H.
        head_dim: width of a head, all of which is rotated.
        hidden: width of the hidden layer; None: d_model/8 (at least 1).
        base: θ_c = base^(-2c/head_dim).
        layout: pairs ``half`` (c, c + r/2) or ``interleaved`` (2c, 2c + 1).

    Examples:
        >>> import torch
        >>> from clockhands.schemes import RePo
        >>> x, pos = torch.randn(1, 3, 8), torch.tensor([[0, 1, 2]])
        >>> RePo(d_model=8, num_heads=2, head_dim=4).locate(x, pos, None).shape
        torch.Size([1, 2, 3, 1])
    """

    equation = r"z_h(x) = w_h \cdot (\mathrm{silu}(W_g x) \odot W_c x), \quad q \mapsto R(z_h \theta) q"
    source = "arXiv 2512.14391, section 3"
    peers = ("SakanaAI/repo (the authors' code; in no library)",)
    per_layer = True
    memoised = False

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        head_dim: int,
        *,
        hidden: Count | None = None,
        base: Positive = 10_000.0,
        layout: Layout = "half",
    ) -> None:
        super().__init__(layout)
        refuse(head_dim % 2, f"repo rotates pairs of channels; head_dim is {head_dim}, which is odd")
        self.head_dim, self.base = head_dim, base
        hidden = max(d_model // 8, 1) if hidden is None else hidden
        self.gate = nn.Linear(d_model, hidden, bias=False)
        self.content = nn.Linear(d_model, hidden, bias=False)
        self.place = nn.Linear(hidden, num_heads, bias=False)

    declares = Declares(translation_invariant=True, real_valued=True, axes=None)

    def locate(self, x_BSD: States, pos: QueryPositions, past_BHTA: Places | None) -> Located:
        x = x_BSD.float()
        gate = F.linear(x, self.gate.weight.float())
        content = F.linear(x, self.content.weight.float())
        # SwiGLU and one number a head: the place on the real line.
        place_BSH = F.linear(F.silu(gate) * content, self.place.weight.float())
        return place_BSH.transpose(1, 2)[..., None]

    def angles(self, pos: QueryPositions) -> Float[Tensor, "B H S F"]:
        return compute_angles(pos[..., 0], compute_frequencies(self.head_dim, self.base, device=pos.device))
