"""Two-way analysis of variance of states, by text and by position: the share due to position, corrected for chance."""

from __future__ import annotations

import torch

from clockhands.inspection.estimators.intervals import jackknife_mean
from clockhands.shapes import Float, Tensor


def unbiased_share(states_NTD: Float[Tensor, "N T D"]) -> float:
    """Return the share of the variance of N ≥ 2 texts that is due to position, corrected for chance.

    The share is (SS_position − (T−1)·MS_interaction) / SS_total. Its numerator is 0 on average where position adds
    nothing, whatever the texts' own means are: these are an effect of their own and no part of the interaction.
    """
    states = _centred(states_NTD)
    sums = (states.sum(0), states.sum(1).square().sum(), states.square().sum())
    return _share(len(states), *sums)


def _centred(states_NTD: Tensor) -> Tensor:
    """Subtract the mean of all states, so that sums of squares do not cancel."""
    return states_NTD.double() - states_NTD.double().mean((0, 1))


def _share(count: int, sum_TD: Tensor, text_squares: Tensor, squares: Tensor) -> float:
    """Compute the share from sums over the texts: of states, of the squared sum of each text, and of squares."""
    length = len(sum_TD)
    constant = float(sum_TD.sum(0).square().sum()) / (count * length)
    total = float(squares) - constant
    position = float(sum_TD.square().sum()) / count - constant
    text = float(text_squares) / length - constant
    # (T−1) times the mean square of the interaction, which has (T−1)(N−1) degrees of freedom
    chance = (total - position - text) / (count - 1)
    return (position - chance) / max(total, 1e-30)


def share_interval(states_NTD: Float[Tensor, "N T D"]) -> tuple[float, float] | None:
    """Return the 95 % interval of ``unbiased_share``, Student's t over the shares without each of the N texts.

    None for fewer than three texts: without one of two nothing is left to compare.
    """
    if len(states_NTD) < 3:
        return None
    states = _centred(states_NTD)
    sum_TD, text_squares_N, squares_N = states.sum(0), states.sum(1).square().sum(-1), states.square().sum((1, 2))
    shares = [
        _share(len(states) - 1, sum_TD - text_TD, text_squares_N.sum() - text_square, squares_N.sum() - square)
        for text_TD, text_square, square in zip(states, text_squares_N, squares_N, strict=True)
    ]
    return jackknife_mean(unbiased_share(states), torch.tensor(shares, dtype=torch.float64))


def stable_rank(states_NTD: Float[Tensor, "N T D"]) -> float:
    """Return Σσ² / σ₁² of the mean state of each position: how many directions they use."""
    position_TD = states_NTD.double().mean(0)
    values = torch.linalg.svdvals(position_TD - position_TD.mean(0)).square()
    return float(values.sum() / values[0].clamp_min(1e-30))
