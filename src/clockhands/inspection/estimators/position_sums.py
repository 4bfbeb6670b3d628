"""How much of the variance of attention the pair of positions explains: sums over texts, and an unbiased share.

In names of tensors ``g`` are groups of texts.
"""

from __future__ import annotations

import torch

from clockhands.inspection.estimators.intervals import compute_jackknife_error, compute_t_factor
from clockhands.shapes import Float, Num, Tensor

TEXT_GROUPS = 8
"""Groups of texts, without each of which the share is computed again for its interval."""
ROUNDING = 1e-9
"""Sum of squares of attention less uniform attention, for each text, below which attention counts as uniform."""


class PositionSums:
    """Sums of attention less uniform attention over texts, in groups of texts.

    The share that the pair (i, j) of positions explains, and its jackknife interval, need the sums without each group.

    Attributes:
        groups: how many groups of texts.
        texts_g: how many texts each group has.
        total_gHST: the sum over the texts of each group.
        squares_gH: the sum of squares over texts, queries and keys.
    """

    def __init__(self, groups: int = TEXT_GROUPS) -> None:
        self.groups = groups
        self.texts_g = torch.zeros(groups, dtype=torch.float64)
        self.total_gHST = self.squares_gH = torch.zeros(())

    def add(self, centred_BHST: Float[Tensor, "B H S T"]) -> None:
        """Add a batch of attention less uniform attention; it is zero where a query may not attend."""
        batch = len(centred_BHST)
        if not self.total_gHST.ndim:
            self.total_gHST = torch.zeros(self.groups, *centred_BHST.shape[1:], dtype=torch.float64)
            self.squares_gH = torch.zeros(self.groups, centred_BHST.shape[1], dtype=torch.float64)
        group_B = (torch.arange(batch) + self.num_texts) % self.groups
        centred = centred_BHST.double()
        self.total_gHST.index_add_(0, group_B, centred)
        self.squares_gH.index_add_(0, group_B, centred.square().sum((-1, -2)))
        self.texts_g.index_add_(0, group_B, torch.ones(batch, dtype=torch.float64))

    @property
    def num_texts(self) -> int:
        """How many texts were added."""
        return int(self.texts_g.sum())

    def estimate_shares(self) -> tuple[Float[Tensor, " H"], Float[Tensor, "H two"], Float[Tensor, "g H"]]:
        """Estimate for every head the share of variance that the pair of positions explains.

        Returns:
            The share of each head; its 95 % interval (jackknife over groups of texts, Student's t); the shares without
            each group. A group counts if it leaves at least two texts; with fewer than two such groups, the interval
            and the shares without a group are the share itself.
        """
        total, squares, num_texts = self.total_gHST.sum(0), self.squares_gH.sum(0), self.num_texts
        share = self._estimate(total, squares, num_texts)
        used = [group for group in range(self.groups) if 0 < self.texts_g[group] < num_texts - 1]
        if len(used) < 2:
            return share, torch.stack([share, share], dim=-1), share[None]
        without = torch.stack(
            [
                self._estimate(
                    total - self.total_gHST[g], squares - self.squares_gH[g], num_texts - int(self.texts_g[g])
                )
                for g in used
            ]
        )
        half = compute_t_factor(len(used) - 1) * compute_jackknife_error(without)
        return share, torch.stack([share - half, share + half], dim=-1), without

    @staticmethod
    def _estimate(total_HST: Tensor, squares_H: Tensor, num_texts: int) -> Tensor:
        """Estimate the share from the sums over ``num_texts`` texts."""
        between = total_HST.square().sum((-1, -2)) / num_texts
        # Uniform attention in float32 differs from uniform by rounding, and by the same in every text.
        varies = squares_H > ROUNDING * num_texts
        return torch.where(varies, estimate_explained_share(between, squares_H - between, num_texts), 0.0)


def estimate_explained_share(
    between_H: Num[Tensor, " H"], within_H: Num[Tensor, " H"], num_texts: int
) -> Num[Tensor, " H"]:
    """Estimate the share of variance that a mean over texts explains, without the bias of chance.

    One-way analysis of variance: (SS_between − SS_within / (N − 1)) / SS_total for N texts. What is subtracted is what
    chance adds to SS_between: one mean square within for each pair of positions (as in ω², Hays 1963).

    Args:
        between_H: sum of squares of the mean over texts, times the number of texts.
        within_H: sum of squares around that mean.
        num_texts: how many texts there are.
    """
    return (between_H - within_H / max(num_texts - 1, 1)) / (between_H + within_H).clamp_min(1e-30)
