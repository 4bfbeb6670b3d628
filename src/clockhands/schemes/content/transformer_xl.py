"""Transformer-XL: content and position each meet a key of their own, and each with a bias of its own."""

from __future__ import annotations

from typing import final

import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Positive
from clockhands.schemes.frequencies import choose_working_dtype, compute_cos_sin, compute_frequencies, take_axis
from clockhands.schemes.scheme import AttentionInputs, Bias, Declares, Scheme


@final
class TransformerXL(Scheme):
    """Relative positions of Transformer-XL (Dai et al. 2019, section 3.3).

    [(q_i + u)·k_j + (q_i + v)·W_R R_{i-j}]/√d_head with R the sinusoid of the distance (all sines, then all cosines).
    The paper's formula has no direction, so both sides of the query are served; its code's shift was right only on and
    below the diagonal. u and v belong to the layer (``untie_r`` in the authors' code, and XLNet).

    Args:
        d_model: width of the sinusoid; even.
        num_heads: H.
        head_dim: width of a head.
        base: of the sinusoid's wavelengths.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, TransformerXL
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[0, 1, 2]])
        >>> TransformerXL(d_model=16, num_heads=2, head_dim=8).bias(AttentionInputs(q, q, pos, pos)).shape
        torch.Size([1, 2, 3, 3])
    """

    equation = r"\ell_{ij} = [(q_i + u) \cdot k_j + (q_i + v) \cdot W_R R_{i-j}] / \sqrt{d_h}"
    source = "Dai et al. 2019, section 3.3"
    peers = ("transformers XLNetRelativeAttention",)
    models = ("Transformer-XL", "XLNet")
    per_layer = True
    reads_heads = True

    def __init__(self, d_model: int, num_heads: int, head_dim: int, *, base: Positive = 10_000.0) -> None:
        super().__init__()
        refuse(d_model % 2, f"the sinusoid needs an even width, but d_model is {d_model}")
        self.head_dim, self.base, self.d_model = head_dim, base, d_model
        self.project_HKD = nn.Parameter(torch.empty(num_heads, head_dim, d_model))
        self.u_HK = nn.Parameter(torch.empty(num_heads, head_dim))
        self.v_HK = nn.Parameter(torch.empty(num_heads, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw everything from N(0, 0.02²), as the authors do."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    declares = Declares(translation_invariant=True, real_valued=True)

    def bias(self, at: AttentionInputs) -> Bias:
        """Return u·k_j + (q_i + v)·W_R R_{i-j}, scaled: [B, H, S, T]."""
        dtype, omega_F = at.q.dtype, compute_frequencies(self.d_model, self.base, device=at.q.device)
        qpos, kpos = take_axis(at.qpos, "transformer-xl"), take_axis(at.kpos, "transformer-xl")
        wide = choose_working_dtype(dtype)
        q_cos, q_sin = compute_cos_sin(qpos, omega_F, wide)
        k_cos, k_sin = compute_cos_sin(kpos, omega_F, wide)
        q_cos, q_sin = q_cos[:, None], q_sin[:, None]
        # W_R is applied to the query once, and not to every R_{i-j}.
        query_BHSD = (at.q + self.v_HK.to(dtype)[:, None]) @ self.project_HKD.to(dtype)
        sine_BHSF, cosine_BHSF = query_BHSD.to(wide).chunk(2, dim=-1)
        # sin(iω)cos(jω) - cos(iω)sin(jω) = sin((i - j)ω): the sinusoid of the distance by the addition theorem.
        rotated_BHSD = torch.cat(
            [sine_BHSF * q_sin + cosine_BHSF * q_cos, cosine_BHSF * q_sin - sine_BHSF * q_cos], dim=-1
        )
        position_BHST = rotated_BHSD @ torch.cat([k_cos, k_sin], dim=-1)[:, None].transpose(-1, -2)
        # u·k_j is the same for all queries: one column a key.
        content_BHT1 = at.k @ self.u_HK.to(dtype)[:, :, None]
        return self.scale(self.head_dim) * (position_BHST + content_BHT1.transpose(-1, -2))
