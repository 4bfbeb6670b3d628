"""FIRE: a learned function of the distance relative to how far one could look at all."""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import nn

from clockhands.options import Count, Positive
from clockhands.schemes.bias.mlp import Perceptron, evaluate_piecewise
from clockhands.schemes.distance import compute_distances
from clockhands.schemes.scheme import AttentionInputs, Bias, Declares, Scheme
from clockhands.shapes import Float, Num, Tensor


@final
class Fire(Scheme):
    """Functional interpolation for relative position encoding (Li et al. 2024, equations 7 and 18, appendix E).

    f(ψ(|i - j|) / ψ(max(i, |L|))) with ψ(x) = ln(|c·x| + 1), c and L learned, f a network 1 → hidden → H with ReLU. The
    query's own position normalises, so a common shift of all positions changes the bias.

    Args:
        num_heads: H.
        hidden: width of the hidden layer.
        c: where the learned c begins.
        length: where the learned threshold L begins; it is learned as a factor on this number.
        threshold: ``whole`` compares the position with L, as the paper prints; ``halved`` with L/2, as one of the two
            files in the repository of DAPE does.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, Fire
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[0, 1, 2]])
        >>> Fire(num_heads=2).bias(AttentionInputs(q, q, pos, pos)).shape
        torch.Size([1, 2, 3, 3])
    """

    equation = (
        r"\ell_{ij} \mathrel{+}= f_h\!\left(\frac{\psi(i - j)}{\psi(\max(L, i))}\right), \psi(x) = \log(|cx| + 1)"
    )
    source = "Li et al. 2024, section 3"
    peers = ("chuanyang-Zheng/DAPE FIRE (in no library)",)

    def __init__(
        self,
        num_heads: int,
        *,
        hidden: Count = 32,
        c: Positive = 0.1,
        length: Positive = 512.0,
        threshold: Literal["whole", "halved"] = "whole",
    ) -> None:
        super().__init__()
        self.start, self.length = c, length if threshold == "whole" else length / 2
        self.c = nn.Parameter(torch.empty(()))
        self.factor = nn.Parameter(torch.empty(()))
        self.mlp = Perceptron(1, hidden, num_heads, activation=nn.ReLU)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.c.fill_(self.start)
        self.factor.fill_(1.0)

    declares = Declares(translation_invariant=False, real_valued=True)

    def psi(self, x: Num[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Compute ln(|c·x| + 1), in float32."""
        # log1p keeps the digits of ln(1 + x) where x is small.
        return torch.log1p((self.c.float() * x).abs())

    def bias(self, at: AttentionInputs) -> Bias:
        return self.curve(compute_distances(at.qpos, at.kpos).float(), at.qpos.float())

    def curve(self, distance_BST: Float[Tensor, "#B S T"], qpos: Float[Tensor, "B S"]) -> Float[Tensor, "#B H S T"]:
        """Compute the network's output for distances [B, S, T] and the positions of their queries: [B, H, S, T]."""
        # Distances are divided by that of the query from the beginning, at least by the learned threshold.
        qpos = qpos[: distance_BST.shape[0]]  # one row, if all texts stand alike
        furthest_BS = torch.maximum(qpos, (self.factor.float() * self.length).abs())
        # 1e-6 keeps the first token, 0/0, at 0.
        share_BST = self.psi(distance_BST) / (self.psi(furthest_BS)[:, :, None] + 1e-6)
        return evaluate_piecewise(self.mlp, share_BST).transpose(0, 1)
