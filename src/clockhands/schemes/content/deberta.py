"""DeBERTa: content looks at position, and position looks at content."""

from __future__ import annotations

import math
from typing import Any, Literal, final

import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Count, FromZero
from clockhands.schemes.distance import compute_distances
from clockhands.schemes.position_checks import check_integer
from clockhands.schemes.scheme import AttentionInputs, Bias, Declares, Scheme
from clockhands.shapes import Float, Int, Tensor


def _list_bucket_ends(buckets: int, max_distance: int) -> list[int]:
    """Return the largest distance of each of DeBERTa-v2's buckets from the middle on.

    With m = buckets/2 a distance a > m goes to m + ⌈(m - 1)·ln(a/m)/ln((max_distance - 1)/m)⌉. Integer powers decide,
    so that no rounded logarithm can.
    """
    middle = buckets // 2
    ends, distance = [middle], middle
    for step in range(1, buckets - middle + 1):
        while (distance + 1) ** (middle - 1) * middle**step <= (max_distance - 1) ** step * middle ** (middle - 1):
            distance += 1
        ends.append(distance)
    return ends


@final
class DeBERTa(Scheme):
    """Disentangled attention (He et al. 2021, equations 4 and 13).

    [Qc_i·Kc_j + Qc_i·Kr_δ(i,j) + Kc_j·Qr_δ(j,i)]/√(3·d_head), δ(i, j) = clip(i - j + k, 0, 2k - 1): Kr and Qr are two
    projections of one table of 2k positions. With fewer terms the 3 becomes their number. Each layer has a table of its
    own here (the authors share it among the layers).

    Args:
        d_model: width of the table.
        num_heads: H.
        head_dim: width of a head.
        span: k. With ``buckets`` it is the furthest distance of the last bucket.
        buckets: 0 counts distances one by one (v1); otherwise there are this many on each side, the first half of them
            one by one and the rest in the logarithm (v2).
        terms: which of content-to-position and position-to-content are there.
        p2c: ``paper``: Qr_δ(j,i), equation 4; ``code``: Qr_δ(i,j), as the authors' and transformers' code computes.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, DeBERTa
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[0, 1, 2]])
        >>> DeBERTa(d_model=16, num_heads=2, head_dim=8).bias(AttentionInputs(q, q, pos, pos)).shape
        torch.Size([1, 2, 3, 3])
    """

    equation = r"\ell_{ij} = [q_i \cdot k_j + q_i \cdot k^r_{\delta(i,j)} + k_j \cdot q^r_{\delta(j,i)}] / \sqrt{3 d_h}"
    source = "He et al. 2021, section 3.1"
    peers = ("transformers DeBERTa, DeBERTa-v2 (p2c='code')",)
    models = ("DeBERTa", "DeBERTa-v2")
    per_layer = True
    reads_heads = True

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        head_dim: int,
        *,
        span: Count = 512,
        buckets: FromZero = 0,
        terms: Literal["c2p+p2c", "c2p", "p2c"] = "c2p+p2c",
        p2c: Literal["paper", "code"] = "paper",
    ) -> None:
        super().__init__()
        refuse(
            buckets and (buckets % 2 or not 2 <= buckets // 2 < span - 1),
            f"buckets is {buckets} with span {span}; it must be 0, or even, at least 4 and below 2·(span - 1)",
        )
        self.head_dim, self.num_heads, self.terms, self.p2c = head_dim, num_heads, terms.split("+"), p2c
        self.span, self.buckets = span, buckets
        self.side = buckets or span
        self.table_RD = nn.Parameter(torch.empty(2 * self.side, d_model))
        self.to_key = nn.Linear(d_model, num_heads * head_dim) if "c2p" in self.terms else None
        self.to_query = nn.Linear(d_model, num_heads * head_dim) if "p2c" in self.terms else None
        self.ends_N: Tensor  # a buffer, saved with the weights, so that a loaded table keeps its buckets
        self.register_buffer("ends_N", torch.empty(buckets // 2 + 1 if buckets else 0, dtype=torch.long))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights from N(0, 0.02²) as in BERT, set biases to zero, and lay the ends of the buckets."""
        nn.init.normal_(self.table_RD, std=0.02)
        for layer in (self.to_key, self.to_query):
            if layer is not None:
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        if self.buckets:
            self.ends_N.copy_(torch.tensor(_list_bucket_ends(self.buckets, self.span), dtype=torch.long))

    declares = Declares(translation_invariant=True)

    def scale(self, head_dim: int) -> float:
        """Return 1/√(n·d_head) for n terms, the product of contents among them."""
        return 1 / math.sqrt(head_dim * (1 + len(self.terms)))

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return the keys of DeBERTa-v2; None where p2c is the paper's, which no code has."""
        if self.p2c == "paper" and "p2c" in self.terms:
            return None
        return {
            "relative_attention": True,
            "max_relative_positions": self.span,
            "position_buckets": self.buckets or -1,
            "pos_att_type": list(self.terms),
        }

    def row(self, distance_BST: Int[Tensor, "B S T"]) -> Int[Tensor, "B S T"]:
        """Return δ, the row of the table for each distance, after v2's buckets: [B, S, T]."""
        if self.buckets:
            far = torch.bucketize(distance_BST.abs().contiguous(), self.ends_N)
            bucket = torch.where(far == 0, distance_BST.abs(), far + self.buckets // 2)
            # Buckets are counted by |i - j|, and the sign says on which side.
            distance_BST = bucket * distance_BST.sign()
        return (distance_BST + self.side).clamp(0, 2 * self.side - 1)

    def bias(self, at: AttentionInputs) -> Bias:
        """Return content-to-position and position-to-content, scaled: [B, H, S, T]."""
        distance_BST = compute_distances(at.qpos, at.kpos)
        check_integer(distance_BST, "deberta")
        terms = []
        if self.to_key is not None:
            terms.append(self._look_up(at.q, self.to_key, self.row(distance_BST)))
        if self.to_query is not None:
            # The paper looks the key's distance to the query up, δ(j, i); the code reads it from the other side.
            row_BST = self.row(-distance_BST if self.p2c == "paper" else distance_BST)
            terms.append(self._look_up(at.k, self.to_query, row_BST.transpose(1, 2)).transpose(-1, -2))
        # 1/√(3d) with both terms: the sum of three products has three times the variance.
        return torch.stack(terms).sum(0) * self.scale(self.head_dim)

    def _look_up(
        self, x_BHSK: Float[Tensor, "B H S K"], layer: nn.Linear, row_BST: Int[Tensor, "#B S T"]
    ) -> Float[Tensor, "B H S T"]:
        """Multiply x with every projected position of the table, and gather the one of each pair: [B, H, S, T]."""
        dtype = x_BHSK.dtype
        table_RD = nn.functional.linear(self.table_RD.to(dtype), layer.weight.to(dtype), layer.bias.to(dtype))
        # Every row of the table is multiplied once, and pairs look the product up: 2k columns, and no vector a pair.
        at_BHSR = x_BHSK @ table_RD.unflatten(-1, (self.num_heads, self.head_dim)).permute(1, 2, 0)
        rows_BHST = row_BST[:, None].expand(*x_BHSK.shape[:3], row_BST.shape[-1])
        return at_BHSR.gather(-1, rows_BHST.long())  # torch before 2.7 takes no narrower index
