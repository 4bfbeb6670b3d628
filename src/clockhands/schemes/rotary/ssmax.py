"""Scalable softmax: attention that stays as sharp in longer texts, by as much as each head learns."""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import FromZero
from clockhands.schemes.frequencies import choose_working_dtype, take_axis
from clockhands.schemes.position_checks import check_counts
from clockhands.schemes.scheme import (
    AttentionInputs,
    Declares,
    KeyPositions,
    Keys,
    Logits,
    MaskedPairs,
    Queries,
    QueryPositions,
    Rotated,
    Scheme,
)
from clockhands.shapes import Tensor


@final
class SSMax(Scheme):
    """Scalable softmax (Nakanishi 2025): logits are multiplied by s_h·ln n, with n the tokens that the query sees and s
    learned for each head and layer. Nothing is rotated.

    Args:
        num_heads: H.
        count: what n is: ``position``, one more than the query's position in its document, which packed documents and
            padding count by themselves; ``visible``, how many keys the mask shows to the query, in any direction and
            within a window.
        bias: whether a learned b_h is added to the factor (Mistral Large 4: s_h·ln(p + 1) + b_h).
        start: where s begins; 0.168 is 1 over the mean of ln n up to 1,024 tokens. b begins at 1.
        axis: the coordinate that ``position`` counts along, from 0 on, where positions have several, of which none says
            by itself how many tokens a query sees; None: they have one. One behind the coordinates of the other schemes
            is one more, which this scheme alone reads, as under ``window``.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import SSMax
        >>> q, pos = torch.ones(1, 1, 3, 1), torch.tensor([[0, 1, 2]])
        >>> SSMax(num_heads=1, start=1.0).rotate(q, q, pos, pos)[0].flatten().tolist()
        [0.0, 0.6931471824645996, 1.0986123085021973]
    """

    equation = r"\ell_{ij} = (s_h \ln n_i + b_h)\, q_i \cdot k_j / \sqrt{d_h}"
    source = "Nakanishi 2025 (2501.19399); Mistral Large 4 (2026), transformers"
    peers = ("transformers MistralLarge4TextSoftmaxScaling (bias=true)",)
    models = ("Mistral Large 4",)
    per_layer = True
    axes_advice = "set ssmax.count to 'visible', or ssmax.axis to the coordinate that it reads, counted from 0"

    def __init__(
        self,
        num_heads: int,
        *,
        count: Literal["position", "visible"] = "position",
        bias: bool = False,
        start: float = 0.168,
        axis: FromZero | None = None,
    ) -> None:
        super().__init__()
        refuse(
            axis is not None and count == "visible",
            f"ssmax.axis is {axis}, but count 'visible' reads no position; leave axis out",
        )
        self.axis, self.count, self.start, self.scales_queries = axis, count, start, count == "position"
        self.slope_H = nn.Parameter(torch.empty(num_heads))
        self.bias_H = nn.Parameter(torch.empty(num_heads)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.slope_H.fill_(self.start)
        if self.bias_H is not None:
            self.bias_H.fill_(1.0)

    @property
    def declares(self) -> Declares:
        if self.count == "visible":
            return Declares(translation_invariant=True, real_valued=True, axes=None)
        return Declares(real_valued=True, axes=(self.axis or 0) + 1, more_axes=self.axis is not None)

    def active_hooks(self) -> frozenset[str]:
        """Return the one hook that this instance needs: queries are multiplied, or whole rows of logits."""
        return frozenset({"rotate" if self.count == "position" else "logits"})

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        if self.count == "visible":
            return q_BHSK, k_BHTK
        pos = take_axis(qpos, "ssmax", self.axis, self.axes_advice)
        check_counts(pos, "ssmax")
        # A query sees its own token too: n is its position plus 1.
        return self._sharpen(q_BHSK, (pos if pos.dim() == 3 else pos[:, None]) + 1), k_BHTK

    def logits(self, logits_BHST: Logits, mask_BHST: MaskedPairs, at: AttentionInputs) -> Logits:
        if self.count == "position":
            return logits_BHST
        # A query that sees nothing counts as one key, whose logarithm is 0, and not minus infinity.
        return self._sharpen(logits_BHST, mask_BHST.sum(-1).clamp(min=1))

    def _sharpen(self, x_BHSK: Tensor, count_BHS: Tensor) -> Tensor:
        dtype = choose_working_dtype(x_BHSK.dtype)
        # s·ln n: the largest weight then does not fade as the keys grow in number.
        factor_BHS = self.slope_H.to(dtype)[:, None] * count_BHS.to(dtype).log()
        if self.bias_H is not None:
            factor_BHS = factor_BHS + self.bias_H.to(dtype)[:, None]
        return (x_BHSK * factor_BHS[..., None]).to(x_BHSK.dtype)
