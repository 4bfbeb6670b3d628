"""The statistics that several measures share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from clockhands.shapes import Float, Int, Num, Tensor


def bootstrap(
    numerator_N: Float[Tensor, " N"], denominator_N: Float[Tensor, " N"], draws: int = 400
) -> tuple[float, float]:
    """The 95 % interval of Σ numerator / Σ denominator when the N texts are drawn again with replacement."""
    count = len(numerator_N)
    generator = torch.Generator().manual_seed(0)
    picks = torch.randint(count, (draws, count), generator=generator)
    ratios = numerator_N.double()[picks].sum(1) / denominator_N.double()[picks].sum(1).clamp_min(1e-30)
    return interval(ratios)


def bootstrap_layers(
    numerator_LN: Float[Tensor, "L N"], denominator_LN: Float[Tensor, "L N"], draws: int = 400
) -> tuple[float, float]:
    """The 95 % interval of the mean over layers of Σ numerator / Σ denominator when the N texts are drawn again."""
    count = numerator_LN.shape[1]
    picks = torch.randint(count, (draws, count), generator=torch.Generator().manual_seed(0))
    above, below = numerator_LN.double()[:, picks].sum(-1), denominator_LN.double()[:, picks].sum(-1)
    return interval((above / below.clamp_min(1e-30)).mean(0))


def hit_interval(hits_n: Float[Tensor, " n"], texts_n: Int[Tensor, " n"]) -> tuple[float, float]:
    """Return the 95 % interval of a share of hits (0 or 1), the texts that they come from drawn again.

    Where all are hits, or none is, drawing texts again gives one number, however few they are. There the bound is
    exact: of N texts all of which were whole, the share of whole texts is at least 0.025^(1/N) (Clopper & Pearson
    1934), and the share of hits at least that.
    """
    texts, place_n = texts_n.unique(return_inverse=True)
    hits_N = torch.zeros(len(texts), dtype=torch.float64).index_add_(0, place_n, hits_n.double())
    counts_N = torch.bincount(place_n, minlength=len(texts)).double()
    return exact_at_ends(bootstrap(hits_N, counts_N), float(hits_n.double().mean()), len(texts))


def exact_at_ends(interval: tuple[float, float], share: float, texts: int) -> tuple[float, float]:
    """Return the interval of a share over so many texts; exact bounds (Clopper & Pearson) at 0 and at 1."""
    if 0 < share < 1:
        return interval
    reach = 0.025 ** (1 / texts)
    return (reach, 1.0) if share >= 1 else (0.0, 1 - reach)


GROUPS = 8
"""Groups of texts, without each of which attention by place is counted again for its interval."""
ROUNDING = 1e-9
"""Squares of attention around uniform, summed over a text, below which attention is uniform."""


class PlaceSums:
    """What pairs of places have in common over texts: sums of attention less its uniform part, in groups of texts.

    The share that the pair of places explains, and its jackknife interval, need the sums without each group.
    """

    def __init__(self, groups: int = GROUPS) -> None:
        self.count = groups
        self.texts_G = torch.zeros(groups, dtype=torch.float64)
        self.total_GHST = self.squares_GH = torch.zeros(())

    def add(self, centred_BHST: Float[Tensor, "B H S T"]) -> None:
        """Count in one batch; what a query may not see is zero."""
        texts = len(centred_BHST)
        if not self.total_GHST.ndim:
            self.total_GHST = torch.zeros(self.count, *centred_BHST.shape[1:], dtype=torch.float64)
            self.squares_GH = torch.zeros(self.count, centred_BHST.shape[1], dtype=torch.float64)
        group_B = (torch.arange(texts) + int(self.texts_G.sum())) % self.count
        centred = centred_BHST.double()
        self.total_GHST.index_add_(0, group_B, centred)
        self.squares_GH.index_add_(0, group_B, centred.square().sum((-1, -2)))
        self.texts_G.index_add_(0, group_B, torch.ones(texts, dtype=torch.float64))

    @property
    def texts(self) -> int:
        """How many texts were counted."""
        return int(self.texts_G.sum())

    def shares(self) -> tuple[Float[Tensor, " H"], Float[Tensor, "H two"], Float[Tensor, "G H"]]:
        """The share of every head, its 95 % interval, and the shares without each group of texts."""
        from scipy.stats import t

        total, squares, texts = self.total_GHST.sum(0), self.squares_GH.sum(0), self.texts
        value = self._share(total, squares, texts)
        used = [group for group in range(self.count) if 0 < self.texts_G[group] < texts - 1]
        if len(used) < 2:
            return value, torch.stack([value, value], dim=-1), value[None]
        without = torch.stack(
            [
                self._share(total - self.total_GHST[g], squares - self.squares_GH[g], texts - int(self.texts_G[g]))
                for g in used
            ]
        )
        error = ((len(used) - 1) / len(used) * (without - without.mean(0)).square().sum(0)).sqrt()
        reach = float(t.ppf(0.975, len(used) - 1)) * error
        return value, torch.stack([value - reach, value + reach], dim=-1), without

    @staticmethod
    def _share(total_HST: Tensor, squares_H: Tensor, texts: int) -> Tensor:
        between = total_HST.square().sum((-1, -2)) / texts
        # Uniform attention in float32 differs from uniform by rounding, and by the same in every text.
        return torch.where(squares_H > ROUNDING * texts, explained_share(between, squares_H - between, texts), 0.0)


def jackknife_mean(value: float, without_G: Float[Tensor, " G"]) -> tuple[float, float]:
    """The 95 % interval of an estimate from the estimates without each of G groups of texts, by Student's t."""
    from scipy.stats import t

    groups = len(without_G)
    if groups < 2:
        return value, value
    error = math.sqrt((groups - 1) / groups * float((without_G - without_G.mean()).square().sum()))
    reach = float(t.ppf(0.975, groups - 1)) * error
    return value - reach, value + reach


def explained_share(between_H: Num[Tensor, " H"], within_H: Num[Tensor, " H"], count: int) -> Num[Tensor, " H"]:
    """The unbiased share of variance that a mean over ``count`` texts explains: the squares between, less what chance
    puts there (the residual mean square), over all squares."""
    return (between_H - within_H / max(count - 1, 1)) / (between_H + within_H).clamp_min(1e-30)


def jackknife(texts_NT: Tensor, estimate: Callable[[Tensor], float], groups: int = 10) -> tuple[float, float]:
    """The 95 % interval of an estimate from N ≥ 2 texts: Student's t over the estimates without each group of texts.

    Source: Tukey 1958; Wolter 2007, section 4.2, for groups.
    """
    count = min(groups, len(texts_NT))
    group_N = torch.arange(len(texts_NT)) % count
    without = torch.tensor([estimate(texts_NT[group_N != group]) for group in range(count)], dtype=torch.float64)
    return jackknife_mean(estimate(texts_NT), without)


def mean_interval(values_N: Float[Tensor, " N"]) -> tuple[float, float]:
    """The 95 % interval of the mean of N ≥ 2 independent values, by Student's t."""
    from scipy.stats import t

    count = len(values_N)
    reach = float(t.ppf(0.975, count - 1)) * float(values_N.double().std()) / count**0.5
    mean = float(values_N.double().mean())
    return mean - reach, mean + reach


def interval(values: Float[Tensor, " n"]) -> tuple[float, float]:
    """The central 95 % of some values."""
    low, high = torch.quantile(values.double(), torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def rank_of_share(values_n: Float[Tensor, " n"], share: float) -> int:
    """Return how many of the values, the largest first, are needed to reach this share of their sum."""
    return int((values_n.cumsum(0) < share * values_n.sum()).sum()) + 1


def covariance(rows_ND: Float[Tensor, "N D"], weights_N: Num[Tensor, " N"] | None = None) -> Float[Tensor, "D D"]:
    """The covariance of rows, each counted with its weight, in float64."""
    rows = rows_ND.double()
    weights = torch.ones(len(rows), dtype=torch.float64) if weights_N is None else weights_N.double()
    weights = weights / weights.sum()
    centred = rows - weights @ rows
    return (centred * weights[:, None]).T @ centred


def linear_fit(y_T: Float[Tensor, " T"]) -> tuple[float, float]:
    """Slope over 0, 1, 2 … and R² of the straight line."""
    x = torch.arange(len(y_T), dtype=torch.float64)
    x, y = x - x.mean(), y_T.double() - y_T.double().mean()
    slope = float((x * y).sum() / x.square().sum())
    total = float(y.square().sum())
    return slope, 1 - float((y - slope * x).square().sum()) / total if total > 0 else 0.0


def off_diagonal_means(matrix_TT: Float[Tensor, "T T"]) -> Float[Tensor, " R"]:
    """The mean of each diagonal above the main one: element k-1 belongs to distance k."""
    return torch.stack([torch.diagonal(matrix_TT, k).mean() for k in range(1, len(matrix_TT))])


def toeplitz_share(matrix_TT: Float[Tensor, "T T"]) -> float:
    """R² of a symmetric matrix against its diagonal means, the main diagonal left out (it would flatter)."""
    size = len(matrix_TT)
    upper = torch.triu_indices(size, size, 1)
    values = matrix_TT[upper[0], upper[1]].double()
    fitted = off_diagonal_means(matrix_TT)[upper[1] - upper[0] - 1].double()
    total = (values - values.mean()).square().sum()
    return float(1 - (values - fitted).square().sum() / total.clamp_min(1e-30))
