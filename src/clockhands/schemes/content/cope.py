"""CoPE: positions count what the query finds worth counting."""

from __future__ import annotations

from typing import final

import torch
from torch import nn

from clockhands.options import Count
from clockhands.schemes.pieces import list_pieces, reads_in_pieces
from clockhands.schemes.scheme import AttentionInputs, Declares, Logits, MaskedPairs, Scheme
from clockhands.shapes import Bool, Float, Tensor


@final
class CoPE(Scheme):
    """Contextual position encoding (Golovneva et al. 2024, equations 3 to 6).

    Gates g_ij = σ(q_i·k_j/√d) count from the query back to the key, p_ij = Σ_{t=j..i} g_it; the logit gains
    q_i·e(p_ij), interpolated between the two nearest of ``max_position`` learned vectors (shared by the heads).

    Args:
        head_dim: width of a head.
        max_position: counts are clamped to ``max_position`` - 1.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, CoPE
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[0, 1, 2]])
        >>> mask, logits = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril(), torch.zeros(1, 2, 3, 3)
        >>> CoPE(head_dim=8).logits(logits, mask, AttentionInputs(q, q, pos, pos)).shape
        torch.Size([1, 2, 3, 3])
    """

    equation = r"\ell_{ij} \mathrel{+}= q_i \cdot e[p_{ij}], \quad p_{ij} = \sum_{t=j}^{i} \sigma(q_i \cdot k_t)"
    source = "Golovneva et al. 2024, section 4"
    peers = ("x-transformers CoPE",)
    per_layer = True
    reads_heads = True

    def __init__(self, head_dim: int, *, max_position: Count = 64) -> None:
        super().__init__()
        self.embedding_PK = nn.Parameter(torch.zeros(max_position, head_dim))

    declares = Declares(translation_invariant=True, causal_only=True, real_valued=True, axes=None)

    def logits(self, logits_BHST: Logits, mask_BHST: MaskedPairs, at: AttentionInputs) -> Logits:
        """Add q_i·e(p_ij) to the logits, interpolated between the two vectors next to the count: [B, H, S, T]."""
        at_BHSP = at.q @ self.embedding_PK.to(at.q.dtype).T
        mask_BHST = mask_BHST.expand(logits_BHST.shape)
        if not reads_in_pieces(logits_BHST, at_BHSP):
            return logits_BHST + _read_at_counts(logits_BHST, mask_BHST, at_BHSP)
        sum_BHST = torch.empty_like(logits_BHST)
        for rows in list_pieces(logits_BHST):
            own = logits_BHST[rows]
            torch.add(own, _read_at_counts(own, mask_BHST[rows], at_BHSP[rows]), out=sum_BHST[rows])
        return sum_BHST

    def reset_parameters(self) -> None:
        """Set all vectors to zero, as the authors do."""
        self.embedding_PK.zero_()


def _read_at_counts(
    logits_ST: Float[Tensor, "*any S T"], mask_ST: Bool[Tensor, "*any S T"], at_SP: Float[Tensor, "*any S P"]
) -> Float[Tensor, "*any S T"]:
    """Return q_i·e(p_ij), [..., S, T]: the counts p of the logits' gates, and between q·e of the two next to each."""
    gate_ST = torch.sigmoid(logits_ST.float()).masked_fill(~mask_ST, 0.0)
    # Σ_{t=j..i} g_it (equation 4): a running sum from the query back, which is one of the reversed row.
    count_ST = gate_ST.flip(-1).cumsum(-1).flip(-1).clamp(max=at_SP.shape[-1] - 1)
    low_ST = count_ST.floor()
    index_ST = low_ST.long().clamp_(min=0)  # NaN has no index; it comes out by its share
    # The step after the last vector is never taken: there the count is a whole number.
    step_SP = torch.nn.functional.pad(at_SP.diff(dim=-1), (0, 1))
    share_ST = (count_ST - low_ST).to(at_SP.dtype)
    # (1 - s)·a + s·b as a + s·(b - a).
    return torch.addcmul(at_SP.gather(-1, index_ST), share_ST, step_SP.gather(-1, index_ST))
