"""DIET: learned logits for pairs of positions, apart from the contents."""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import nn

from clockhands.errors import PositionError
from clockhands.options import Count
from clockhands.schemes.distance import compute_distances
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.position_checks import can_read, check_integer, read_index
from clockhands.schemes.scheme import AttentionInputs, Bias, Declares, Scheme
from clockhands.shapes import Tensor


@final
class DIET(Scheme):
    """Decoupled positional attention (Chen et al. 2021): positions meet positions only in the logits.

    ``absolute`` (DIET-ABS): + P_Q[i]·P_K[j] with tables of rank r for each head. ``relative`` (DIET-REL): + R[i - j],
    one number for each head and distance, without buckets.

    Args:
        num_heads: H.
        form: ``absolute`` or ``relative``.
        max_length: positions in the tables; a relative table has the distances between them.
        rank: r; for ``absolute``.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, DIET
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[0, 1, 2]])
        >>> DIET(num_heads=2).bias(AttentionInputs(q, q, pos, pos)).shape
        torch.Size([1, 2, 3, 3])
    """

    equation = r"\ell_{ij} \mathrel{+}= p^Q_i \cdot p^K_j \quad \text{or} \quad R_{i-j}"
    source = "Chen et al. 2021 (2104.08698)"
    per_layer = True

    # The names are those of saved models: the first two are of the form absolute, the third is of relative.
    query_HPR: nn.Parameter
    key_HPR: nn.Parameter
    table_HR: nn.Parameter

    def __init__(
        self,
        num_heads: int,
        *,
        form: Literal["absolute", "relative"] = "absolute",
        max_length: Count = 512,
        rank: Count = 64,
    ) -> None:
        super().__init__()
        self.form, self.max_length = form, max_length
        if form == "absolute":
            self.query_HPR = nn.Parameter(torch.empty(num_heads, max_length, rank))
            self.key_HPR = nn.Parameter(torch.empty(num_heads, max_length, rank))
        else:
            self.table_HR = nn.Parameter(torch.empty(num_heads, 2 * max_length - 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for table in self.parameters():
            nn.init.normal_(table, std=0.02)

    @property
    def declares(self) -> Declares:
        relative = self.form == "relative"
        return Declares(
            translation_invariant=relative, max_length=None if relative else self.max_length, beyond="raise"
        )

    def bias(self, at: AttentionInputs) -> Bias:
        qpos, kpos = take_axis(at.qpos, "diet"), take_axis(at.kpos, "diet")
        if self.form == "relative":
            distance_BST = compute_distances(qpos, kpos)
            check_integer(distance_BST, "diet")
            self._check_distance(distance_BST)
            # Offsets from -(L - 1) to L - 1 are rows 0 to 2L - 2.
            return self.table_HR.float()[:, distance_BST + self.max_length - 1].transpose(0, 1)
        query_HBSR = self.query_HPR.float()[:, read_index(qpos, self.max_length, "diet")]
        key_HBTR = self.key_HPR.float()[:, read_index(kpos, self.max_length, "diet")]
        # A bias of L x L entries as a product of two tables of rank R (equation 4).
        return (query_HBSR @ key_HBTR.transpose(-1, -2)).transpose(0, 1)

    def _check_distance(self, distance_BST: Tensor) -> None:
        if not can_read(distance_BST):
            return
        largest = int(distance_BST.abs().max())
        if largest >= self.max_length:
            raise PositionError(
                f"distance {largest} is outside the table of diet, which reaches {self.max_length - 1}; shorten the "
                f"text, raise max_length, or choose a scheme that extrapolates"
            )
