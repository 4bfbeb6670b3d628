"""TUPE: contents attend to contents, positions to positions, and the first token is untied from both."""

from __future__ import annotations

import math
from typing import final

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.options import Count
from clockhands.schemes.bias.t5 import T5Bias
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.position_checks import read_index
from clockhands.schemes.scheme import AttentionInputs, Bias, Declares, Scheme
from clockhands.shapes import Float, Int, Tensor


@final
class TUPE(Scheme):
    """Untied positional encoding (Ke et al. 2021, equations 6 to 10), one for all layers.

    (x_i W_Q)(x_j W_K)ᵀ/√(2d) + (p_i U_Q)(p_j U_K)ᵀ/√(2d) [+ b_{j-i}], with a layer norm on p. Untying the first token
    (position 0, [CLS] in BERT) puts one number θ1 = p_1'·p_1' on every logit to it and then another θ2 = p_0'·p_0' on
    all its own logits, itself included; they come from two extra rows of the table, as in the authors' code.

    Args:
        d_model: width of the table.
        num_heads: H.
        head_dim: width of a head.
        causal: whether keys to the right of the query are masked (chooses the buckets of ``relative``).
        max_length: positions of the table; a longer text raises PositionError.
        relative: add T5's buckets (TUPE-R).
        untie_first: whether position 0 is untied.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, TUPE
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[0, 1, 2]])
        >>> TUPE(d_model=16, num_heads=2, head_dim=8).bias(AttentionInputs(q, q, pos, pos)).shape
        torch.Size([1, 2, 3, 3])
    """

    equation = r"\ell_{ij} = [q_i \cdot k_j + (p_i U_Q) \cdot (p_j U_K)] / \sqrt{2 d_h} \;[+ b_{j-i}]"
    source = "Ke et al. 2021, section 3"
    peers = ("guolinke/TUPE (the authors' code; in no library)",)

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        head_dim: int,
        causal: bool = True,
        *,
        max_length: Count = 512,
        relative: bool = False,
        untie_first: bool = True,
    ) -> None:
        super().__init__()
        self.head_dim, self.num_heads, self.max_length, self.untie_first = head_dim, num_heads, max_length, untie_first
        self.table_PD = nn.Parameter(torch.empty(max_length + (2 if untie_first else 0), d_model))
        self.norm = nn.LayerNorm(d_model)
        self.to_query = nn.Linear(d_model, num_heads * head_dim)
        self.to_key = nn.Linear(d_model, num_heads * head_dim)
        self.relative = T5Bias(num_heads, d_model, causal) if relative else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table_PD, std=0.02)
        super().reset_parameters()

    @property
    def declares(self) -> Declares:
        return Declares(max_length=self.max_length, beyond="raise")

    def scale(self, head_dim: int) -> float:
        """Return 1/√(2·d_head): contents and positions are two terms of equal weight."""
        return 1 / math.sqrt(2 * head_dim)

    def correlation(
        self, query_rows: Int[Tensor, " S"] | slice = slice(None), key_rows: Int[Tensor, " T"] | slice = slice(None)
    ) -> Float[Tensor, "H S T"]:
        """Return (p U_Q)(p U_K)ᵀ/√(2d) for rows of the table, by default all: [H, S, T], at least in float32."""
        norm, heads, wide = self.norm, self.num_heads, torch.promote_types(self.table_PD.dtype, torch.float32)
        table_PD = self.table_PD.to(wide)
        p_PD = F.layer_norm(table_PD, table_PD.shape[-1:], norm.weight.to(wide), norm.bias.to(wide), norm.eps)
        query_SE = F.linear(p_PD[query_rows], self.to_query.weight.to(wide), self.to_query.bias.to(wide))
        key_TE = F.linear(p_PD[key_rows], self.to_key.weight.to(wide), self.to_key.bias.to(wide))
        query_HSK = query_SE.unflatten(-1, (heads, -1)).transpose(0, 1)
        key_HTK = key_TE.unflatten(-1, (heads, -1)).transpose(0, 1)
        return query_HSK @ key_HTK.transpose(-1, -2) * self.scale(self.head_dim)

    def bias(self, at: AttentionInputs) -> Bias:
        qpos = read_index(take_axis(at.qpos, "tupe"), self.max_length, "tupe")
        kpos = read_index(take_axis(at.kpos, "tupe"), self.max_length, "tupe")
        relative = 0.0 if self.relative is None else self.relative.bias(at._replace(qpos=qpos, kpos=kpos))
        if qpos.stride(0) == kpos.stride(0) == 0:
            qpos, kpos = qpos[:1], kpos[:1]
        first = 2 if self.untie_first else 0
        if len(qpos) == len(kpos) == 1:  # the rows of these tokens alone
            bias_BHST = self.correlation(qpos[0] + first, kpos[0] + first)[None] + relative
            both_HPP = self.correlation(slice(first), slice(first))
        else:  # every pair of rows of the table once, P x P, and not every pair of tokens
            both_HPP = self.correlation()
            bias_BHST = self._pairs(both_HPP, qpos + first, kpos + first) + relative
        if self.untie_first:
            # The first token, [CLS], is at no distance: one learned number to it, and one from it.
            to_first, from_first = both_HPP[:, 1, 1, None, None], both_HPP[:, 0, 0, None, None]
            bias_BHST = torch.where((kpos == 0)[:, None, None, :], to_first, bias_BHST)
            bias_BHST = torch.where((qpos == 0)[:, None, :, None], from_first, bias_BHST)
        return bias_BHST

    def _pairs(
        self, both_HPP: Float[Tensor, "H P P"], row_BS: Int[Tensor, "B S"], column_BT: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B H S T"]:
        """Gather the entry of each pair, first by rows, then by columns: [B, H, S, T]."""
        rows_HBSP = both_HPP[:, row_BS]
        # ``gather`` took no narrower index before torch 2.7.
        columns_HBST = column_BT.long()[None, :, None, :].expand(*rows_HBSP.shape[:3], -1)
        return rows_HBSP.gather(-1, columns_HBST).transpose(0, 1)
