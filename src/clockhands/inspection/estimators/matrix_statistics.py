"""Statistics of single matrices and curves: covariances, lines, diagonals, leading values, columns that rotate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from clockhands.shapes import Float, Num, Tensor


def compute_covariance(
    rows_ND: Float[Tensor, "N D"], weights_N: Num[Tensor, " N"] | None = None
) -> Float[Tensor, "D D"]:
    """Return the covariance of N rows, each counted with its weight (default: alike), in float64."""
    rows = rows_ND.double()
    weights = torch.ones(len(rows), dtype=torch.float64) if weights_N is None else weights_N.double()
    weights = weights / weights.sum()
    centred = rows - weights @ rows
    return (centred * weights[:, None]).T @ centred


def compute_participation(rows_ND: Float[Tensor, "N D"]) -> float:
    """Return the participation ratio of rows, (Σλ)²/Σλ² over the eigenvalues λ of their covariance.

    It is the number of directions that equal variance would fill: 1 if the rows lie on a line, at most min(N − 1, D).
    Raises ValueError for rows that are all equal, which fill none.
    """
    # (Σλ)²/Σλ² is k for k equal eigenvalues and zeros beside them.
    values_D = torch.linalg.eigvalsh(compute_covariance(rows_ND))
    if float(values_D.sum()) <= 1e-12 * float(rows_ND.double().square().sum(-1).max()):
        raise ValueError(f"{len(rows_ND)} equal rows have no direction to vary in")
    return float(values_D.sum() ** 2 / values_D.square().sum())


def compute_random_participation(num_rows: int, width: int, draws: int = 5) -> float:
    """Return the mean participation ratio of rows of independent normal channels, the most that so many rows fill.

    It is about N·D/(N + D) (from the moments of Marchenko & Pastur 1967). The draws are always the same.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (num_rows, width)
    drawn = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(draws))
    return sum(map(compute_participation, drawn)) / draws


def fit_line(y_N: Float[Tensor, " N"]) -> tuple[float, float]:
    """Fit a straight line over 0, 1, 2 … N−1 and return its slope and its R² (0 for values that do not vary)."""
    x = torch.arange(len(y_N), dtype=torch.float64)
    x, y = x - x.mean(), y_N.double() - y_N.double().mean()
    # Least squares of centred values: slope Σxy / Σx², and no intercept.
    slope = float((x * y).sum() / x.square().sum())
    total = float(y.square().sum())
    return slope, 1 - float((y - slope * x).square().sum()) / total if total > 0 else 0.0


def average_diagonals(matrix_NN: Float[Tensor, "N N"]) -> Float[Tensor, " R"]:
    """Return the mean of each diagonal above the main one: entry k−1 belongs to distance k, from 1 to N−1."""
    size = len(matrix_NN)
    row, column = torch.triu_indices(size, size, 1)
    # All diagonals in one pass: Σ of the values at each distance, over how many pairs have it.
    sums_R = torch.bincount(column - row - 1, matrix_NN[row, column].double(), minlength=size - 1)
    return sums_R / torch.arange(size - 1, 0, -1)


def compute_toeplitz_r2(matrix_NN: Float[Tensor, "N N"]) -> float:
    """Return R² of a symmetric matrix against the means of its diagonals: how far distance alone determines it.

    The main diagonal is left out: the cosine of a row with itself is 1, and with it random rows would score high.
    """
    size = len(matrix_NN)
    upper = torch.triu_indices(size, size, 1)
    values = matrix_NN[upper[0], upper[1]].double()
    # The best guess from the distance alone is the mean of its diagonal.
    fitted = average_diagonals(matrix_NN)[upper[1] - upper[0] - 1].double()
    total = (values - values.mean()).square().sum()
    return float(1 - (values - fitted).square().sum() / total.clamp_min(1e-30))


def count_leading(values_N: Float[Tensor, " N"], share: float) -> int:
    """Return how many of the values, given from the largest to the smallest, reach this share of their sum."""
    return int((values_N.cumsum(0) < share * values_N.sum()).sum()) + 1


@dataclass(frozen=True)
class ExactHands:
    """Tokens per turn and columns of the pairs that turn in equal steps, and how many are zero or never change."""

    periods: tuple[float, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    zero_pairs: int = 0
    resting_pairs: int = 0


def list_pairings(width: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the two ways in which sine and cosine are paired: neighbours (Vaswani et al. 2017), or half the width."""
    half = width // 2
    return [(2 * i, 2 * i + 1) for i in range(half)], [(i, i + half) for i in range(half)]


def read_exact_hands(rows_ND: Float[Tensor, "N D"]) -> ExactHands:
    """Read the hands of a table of computed sinusoids; none unless every pair that is not at rest is a hand.

    The distance of a hand from zero varies by less than 0.1 %, and its angle is a straight line with R² above 0.9999.
    No spectrum is searched, so that hands are read too that need many more rows for a turn than the table has.
    """
    for pairs in () if rows_ND.shape[1] % 2 else list_pairings(rows_ND.shape[1]):
        resting = [pair for pair in pairs if torch.equal(*rows_ND[:, pair].aminmax(dim=0))]
        zero = sum(not bool(rows_ND[:, pair].any()) for pair in resting)
        rotating, periods = [pair for pair in pairs if pair not in resting], []
        for pair in rotating:
            radius, angle = rows_ND[:, pair].norm(dim=-1), torch.atan2(rows_ND[:, pair[1]], rows_ND[:, pair[0]])
            # The short way round, from −π to π: a hand of fewer than two rows a turn would be seen to turn backwards.
            steps = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
            slope, r2 = fit_line(torch.cat([angle[:1], angle[0] + steps.cumsum(0)]))
            if float(radius.std()) < 1e-3 * float(radius.mean()) and r2 > 0.9999 and slope != 0:
                periods.append(2 * math.pi / abs(slope))
        if rotating and len(periods) == len(rotating):
            return ExactHands(tuple(periods), tuple(rotating), zero, len(resting) - zero)
    return ExactHands()
