"""The share of the variance of hidden states that is due to position: two-way analysis of variance over texts."""

from __future__ import annotations

import torch

from clockhands.inspection.estimators.intervals import compute_jackknife_interval
from clockhands.shapes import Float, Tensor


def estimate_position_share(states_NTD: Float[Tensor, "N T D"]) -> float:
    """Estimate the share of the variance of states that is due to position, without the bias of chance.

    The model is state = mean + text + position + interaction, and the share (SS_position − (T−1)·MS_interaction) /
    SS_total. Its numerator is 0 on average where position adds nothing, whatever the means of the texts are, which are
    an effect of their own. Needs N ≥ 2 texts of T positions; returns 0 for states that are all equal.

    Source: the analysis of variance of Song & Zhong 2023 with its bias removed.
    """
    states = _centre(states_NTD)
    sums = (states.sum(0), states.sum(1).square().sum(), states.square().sum())
    return _compute_share(len(states), *sums)


def _centre(states_NTD: Tensor) -> Tensor:
    """Subtract the mean of all states, so that sums of squares do not cancel; in float64."""
    return states_NTD.double() - states_NTD.double().mean((0, 1))


def _compute_share(num_texts: int, sum_TD: Tensor, text_squares: Tensor, squares: Tensor) -> float:
    """Compute the share from sums over the texts: of states, of the squared sum of each text, and of squares."""
    length = len(sum_TD)
    mean_squares = float(sum_TD.sum(0).square().sum()) / (num_texts * length)
    total = float(squares) - mean_squares
    position = float(sum_TD.square().sum()) / num_texts - mean_squares
    text = float(text_squares) / length - mean_squares
    # (T−1) times the mean square of the interaction, which has (T−1)(N−1) degrees of freedom
    chance = (total - position - text) / (num_texts - 1)
    return (position - chance) / max(total, 1e-30)


def jackknife_position_share(states_NTD: Float[Tensor, "N T D"]) -> tuple[float, float] | None:
    """Return the 95 % interval of ``estimate_position_share``: Student's t over the shares without each text.

    None for fewer than three texts, since a share needs two. Source: Tukey 1958.
    """
    if len(states_NTD) < 3:
        return None
    states = _centre(states_NTD)
    sum_TD, text_squares_N, squares_N = states.sum(0), states.sum(1).square().sum(-1), states.square().sum((1, 2))
    shares = [
        _compute_share(len(states) - 1, sum_TD - text_TD, text_squares_N.sum() - text_square, squares_N.sum() - square)
        for text_TD, text_square, square in zip(states, text_squares_N, squares_N, strict=True)
    ]
    return compute_jackknife_interval(estimate_position_share(states), torch.tensor(shares, dtype=torch.float64))


def compute_stable_rank(states_NTD: Float[Tensor, "N T D"]) -> float:
    """Return Σσ² / σ₁² of the mean state of each position, centred: how many directions these means use.

    σ are the singular values. Source: the stable rank of Rudelson & Vershynin 2007.
    """
    position_TD = states_NTD.double().mean(0)
    values = torch.linalg.svdvals(position_TD - position_TD.mean(0)).square()
    return float(values.sum() / values[0].clamp_min(1e-30))
