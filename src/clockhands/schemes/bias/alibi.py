"""ALiBi: a straight penalty on distance, steeper in some heads than in others."""

from __future__ import annotations

import math
from typing import Any, Literal, final

import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.schemes.distance import Curves, DistanceBias, Distances
from clockhands.schemes.frequencies import choose_angle_dtype
from clockhands.schemes.position_checks import is_traced
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Float, Tensor


def alibi_slopes(
    num_heads: int, rule: Literal["paper", "geometric"] = "paper", device: torch.device | str = "cpu"
) -> Float[Tensor, " H"]:
    """Return the slope m_h of each head: [H], float32.

    ``paper``: 2^(-8h/H), h = 1..H, for a power of two; otherwise the slopes of the next lower power of two, then every
    other slope of its double (Press et al. 2022, section 3; the authors' ``get_slopes``). ``geometric``: 2^(-8h/H) for
    any H, as attention-gym, fairseq2 and TransformerLens have it; the same where H is a power of two.
    """
    device = torch.device(device)
    head_H = torch.arange(1, num_heads + 1, dtype=choose_angle_dtype(device), device=device)
    power = num_heads if rule == "geometric" else 2 ** math.floor(math.log2(num_heads))
    # Powers of two have a geometric series; others fill it up with every other slope of the next power's.
    share_H = torch.where(head_H <= power, head_H / power, (2 * (head_H - power) - 1) / (2 * power))
    return torch.exp2(-8 * share_H).float()


@final
class Alibi(DistanceBias):
    """Attention with linear biases (Press et al. 2022, section 3): -m_h·(i - j), not scaled by 1/√d_head.

    Args:
        num_heads: H; any number (an even one for ``asymmetric``).
        causal: whether keys to the right of the query are masked.
        form: ``causal`` -m·(i - j); for both directions, of which the paper says nothing: ``symmetric`` -m·|i - j|;
            ``asymmetric``, half of the heads attend to the left only and half to the right, each half with the slopes
            of H/2 heads (the authors, issue 5 of their repository, which also has the other two); ``two-sided``, slopes
            of their own for left and right; ``broken``, -m·(|i - j| - ½) on the left and -m·|i - j| on the right,
            which breaks the symmetry (Ruoss et al. 2023, code). ``auto``: ``causal`` under a causal mask, else
            ``symmetric``.
        slopes: ``paper``, ``geometric`` (they differ where H is no power of two).
        learned: whether the slopes are trained, beginning from these; always so in ``two-sided``. Their absolute values
            count, so that a penalty cannot turn into a reward.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Alibi
        >>> Alibi(num_heads=2).compute_curve(torch.arange(3))
        tensor([[-0.0000, -0.0625, -0.1250],
                [-0.0000, -0.0039, -0.0078]])
    """

    equation = r"\ell_{ij} = q_i \cdot k_j / \sqrt{d_h} - m_h (i - j)"
    source = "Press et al. 2022, section 3"
    peers = ("transformers BLOOM, MPT", "x-transformers AlibiPositionalBias")
    models = ("BLOOM", "MPT", "Baichuan2-13B")
    fixed_curve = True

    def __init__(
        self,
        num_heads: int,
        causal: bool = True,
        *,
        form: Literal["auto", "causal", "symmetric", "asymmetric", "two-sided", "broken"] = "auto",
        slopes: Literal["paper", "geometric"] = "paper",
        learned: bool = False,
    ) -> None:
        super().__init__()
        if form == "auto":
            form = "causal" if causal else "symmetric"
        self.form = form
        refuse(
            self.form == "asymmetric" and num_heads % 2,
            f"form 'asymmetric' gives each side half of the heads, but there are {num_heads}",
        )
        self.num_heads, self.rule = num_heads, slopes
        sides = 2 if self.form == "two-sided" else 1
        self.slopes_OH = nn.Parameter(torch.empty(sides, num_heads)) if learned or sides == 2 else None
        # No buffer, which a model that is built on the meta device would have nowhere to load from (trap 5).
        self._fixed_1H: Tensor | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set learned slopes to the rule's."""
        if self.slopes_OH is not None:
            self.slopes_OH.copy_(self._follow_rule(self.slopes_OH.device).expand_as(self.slopes_OH))

    def _follow_rule(self, device: torch.device) -> Float[Tensor, "1 H"]:
        if self.form == "asymmetric":
            return alibi_slopes(self.num_heads // 2, self.rule, device).repeat(1, 2)
        return alibi_slopes(self.num_heads, self.rule, device)[None]

    def compute_slopes(self, device: torch.device | str = "cpu") -> Float[Tensor, "O H"]:
        """Return the slopes: [O, H], float32; ``O`` runs over the sides (left, right), one where they are alike."""
        if self.slopes_OH is not None:
            return self.slopes_OH.float().abs()  # one below 0 would reward distance
        if is_traced():
            return self._follow_rule(torch.device(device))
        fixed_1H = self._fixed_1H
        if fixed_1H is None or fixed_1H.device != torch.device(device):
            fixed_1H = self._fixed_1H = self._follow_rule(torch.device(device))
        return fixed_1H

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, causal_only=self.form == "causal", real_valued=True)

    @property
    def queries_share_bias_row(self) -> bool:  # type: ignore[override]
        """Whether rows of the bias differ by a constant only, which softmax ignores.

        They do in the form ``causal``, where -m·(i - j) is m·j less m·i.
        """
        return self.form == "causal"

    def list_numbers(self) -> dict[str, tuple[float, ...]]:
        """Return the slopes of all heads; where both sides have some, first those of the left."""
        return {"slopes": tuple(self.compute_slopes().detach().flatten().tolist())}

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return ``attn_config`` of MPT (BLOOM always has these slopes); None for other slopes and directions."""
        same = self.form == "causal" and self.slopes_OH is None
        power = self.num_heads & (self.num_heads - 1) == 0
        return {"attn_config": {"alibi": True}} if same and (power or self.rule == "paper") else None

    def compute_curve(self, distance_R: Distances) -> Curves:
        slopes_OH = self.compute_slopes(distance_R.device)
        distance_R = distance_R.float()
        if self.form == "causal":
            return -slopes_OH[0, :, None] * distance_R
        left_R = (distance_R > 0).float()
        # The first row of slopes is for keys to the left, the last for those to the right.
        steepness_HR = slopes_OH[-1, :, None] * (1 - left_R) + slopes_OH[0, :, None] * left_R
        # ``broken``: half a step nearer on the left, so that no distance counts as much on both sides.
        nearer_R = 0.5 * left_R if self.form == "broken" else 0.0
        bias_HR = -steepness_HR * (distance_R.abs() - nearer_R)
        if self.form == "asymmetric":
            left_only_H = torch.arange(self.num_heads, device=bias_HR.device) < self.num_heads // 2
            other_side_HR = torch.where(left_only_H[:, None], distance_R < 0, distance_R > 0)
            bias_HR = bias_HR.masked_fill(other_side_HR, -math.inf)
        return bias_HR
