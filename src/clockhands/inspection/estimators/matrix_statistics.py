"""Statistics of single matrices and curves: covariances, straight lines, diagonals, leading values."""

from __future__ import annotations

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


def fit_line(y_N: Float[Tensor, " N"]) -> tuple[float, float]:
    """Fit a straight line over 0, 1, 2 … N−1 and return its slope and its R² (0 for values that do not vary)."""
    x = torch.arange(len(y_N), dtype=torch.float64)
    x, y = x - x.mean(), y_N.double() - y_N.double().mean()
    slope = float((x * y).sum() / x.square().sum())
    total = float(y.square().sum())
    return slope, 1 - float((y - slope * x).square().sum()) / total if total > 0 else 0.0


def average_diagonals(matrix_NN: Float[Tensor, "N N"]) -> Float[Tensor, " R"]:
    """Return the mean of each diagonal above the main one: entry k−1 belongs to distance k, from 1 to N−1."""
    return torch.stack([torch.diagonal(matrix_NN, k).mean() for k in range(1, len(matrix_NN))])


def compute_toeplitz_r2(matrix_NN: Float[Tensor, "N N"]) -> float:
    """Return R² of a symmetric matrix against the means of its diagonals: how far distance alone determines it.

    The main diagonal is left out: the cosine of a row with itself is 1, and with it random rows would score high.
    """
    size = len(matrix_NN)
    upper = torch.triu_indices(size, size, 1)
    values = matrix_NN[upper[0], upper[1]].double()
    fitted = average_diagonals(matrix_NN)[upper[1] - upper[0] - 1].double()
    total = (values - values.mean()).square().sum()
    return float(1 - (values - fitted).square().sum() / total.clamp_min(1e-30))


def count_leading(values_N: Float[Tensor, " N"], share: float) -> int:
    """Return how many of the values, given from the largest to the smallest, reach this share of their sum."""
    return int((values_N.cumsum(0) < share * values_N.sum()).sum()) + 1
