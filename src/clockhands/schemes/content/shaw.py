"""Shaw's relative positions: a learned key, and a learned value, for each distance."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import nn

from clockhands.options import FromZero
from clockhands.schemes.distance import compute_distances
from clockhands.schemes.position_checks import check_integer
from clockhands.schemes.scheme import (
    AttentionInputs,
    Bias,
    Declares,
    HeadValues,
    KeyPositions,
    Logits,
    QueryPositions,
    Scheme,
)
from clockhands.shapes import Int, Tensor


@final
class Shaw(Scheme):
    """Self-attention with relative position representations (Shaw et al. 2018, equations 3 to 5).

    e_ij = q_i·(k_j + a^K_w)/√d_head and z_i = Σ_j α_ij (v_j + a^V_w) with w = clip(j - i, -k, k). Each layer has tables
    of its own, which its heads share.

    Args:
        head_dim: width of a head.
        clip: k, the furthest distance told apart.
        values: whether the values have a table too (equation 3); without it fused kernels serve.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Shaw
        >>> Shaw(head_dim=8, clip=1).index(torch.tensor([[2]]), torch.tensor([[0, 1, 2]]))
        tensor([[[[0, 0, 1]]]])
    """

    equation = (
        r"\ell_{ij} = q_i \cdot (k_j + a^K_{\mathrm{clip}(j-i)}) / \sqrt{d_h}, \quad"
        r" z_i = \sum_j \alpha_{ij} (v_j + a^V_{\mathrm{clip}(j-i)})"
    )
    source = "Shaw et al. 2018, section 3"
    peers = ("transformers Wav2Vec2-BERT (keys), SpeechT5 (keys)",)
    models = ("Music Transformer", "Wav2Vec2-BERT", "SpeechT5")
    per_layer = True
    reads_heads = True

    def __init__(self, head_dim: int, *, clip: FromZero = 16, values: bool = True) -> None:
        super().__init__()
        self.clip, self.head_dim = clip, head_dim
        self.keys_RK = nn.Parameter(torch.empty(2 * clip + 1, head_dim))
        self.values_RK = nn.Parameter(torch.empty(2 * clip + 1, head_dim)) if values else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the tables from Glorot's uniform distribution, the default of the authors' Tensor2Tensor."""
        for table_RK in self.parameters():
            nn.init.xavier_uniform_(table_RK)

    declares = Declares(translation_invariant=True)

    def active_hooks(self) -> frozenset[str]:
        return frozenset({"bias"} if self.values_RK is None else {"bias", "values"})

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return the keys of Wav2Vec2-BERT; None with a table of values, which no model of transformers has."""
        if self.values_RK is not None:
            return None
        sides = {f"{side}_max_position_embeddings": self.clip for side in ("left", "right")}
        return {"position_embeddings_type": "relative_key", **sides}

    def index(self, qpos: QueryPositions, kpos: KeyPositions) -> Int[Tensor, "#B 1 S T"]:
        """Return the rows of the tables, clip(j - i, -k, k) + k: [B, 1, S, T].

        Raises PositionError for real-valued positions and for several coordinates.
        """
        distance_BST = compute_distances(qpos, kpos)
        check_integer(distance_BST, "shaw")
        return (-distance_BST).clamp(-self.clip, self.clip)[:, None] + self.clip

    def bias(self, at: AttentionInputs) -> Bias:
        """Return q_i·a^K_w/√d_head, gathered from the product with the whole table: [B, H, S, T]."""
        # A query is multiplied with each of the 2k + 1 vectors once, and pairs look the product up.
        at_BHSR = at.q @ self.keys_RK.to(at.q.dtype).T * self.scale(self.head_dim)
        index_BHST = self.index(at.qpos, at.kpos).expand(*at_BHSR.shape[:3], at.k.shape[2])
        return at_BHSR.gather(-1, index_BHST.long())  # torch before 2.7 takes no narrower index

    def values(self, out_BHSK: HeadValues, weights_BHST: Logits, at: AttentionInputs) -> HeadValues:
        """Add Σ_j α_ij a^V_w to the values: [B, H, S, K]."""
        if self.values_RK is None:
            return out_BHSK
        collected_BHSR = weights_BHST.new_zeros(*weights_BHST.shape[:3], 2 * self.clip + 1)
        index_BHST = self.index(at.qpos, at.kpos).expand_as(weights_BHST)
        # Σ_j α_ij a[w(i, j)]: the weights of all keys with one clipped offset are added before the product.
        collected_BHSR = collected_BHSR.scatter_add(-1, index_BHST.long(), weights_BHST)
        return out_BHSK + collected_BHSR.to(out_BHSK.dtype) @ self.values_RK.to(out_BHSK.dtype)
