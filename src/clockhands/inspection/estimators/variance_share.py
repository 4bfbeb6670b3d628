"""Two-way analysis of variance of states: the share that is due to the place, corrected for chance."""

from __future__ import annotations

import math

import torch

from clockhands.shapes import Float, Tensor


def unbiased_share(states_NTD: Float[Tensor, "N T D"]) -> float:
    """The share of variance due to the place, corrected for chance; 0 on average where there is none."""
    states = states_NTD.double()
    count, length, _ = states.shape
    mean = states.mean((0, 1))
    place = states.mean(0)
    total = float((states - mean).square().sum())
    between = count * float((place - mean).square().sum())
    noise = (total - between) / (length * (count - 1))
    return (between - (length - 1) * noise) / max(total, 1e-30)


def share_interval(states_NTD: Float[Tensor, "N T D"]) -> tuple[float, float]:
    """The 95 % interval of ``unbiased_share``, from the share without each of the N ≥ 3 texts in turn."""
    states = states_NTD.double()
    count, length, _ = states.shape
    left, places_TD, squares = count - 1, states.sum(0), states.square().sum()
    shares = []
    for text_TD in states:
        place_TD = (places_TD - text_TD) / left
        constant = length * place_TD.mean(0).square().sum()
        total = float(squares - text_TD.square().sum() - left * constant)
        between = float(left * (place_TD.square().sum() - constant))
        noise = (total - between) / (length * (left - 1))
        shares.append((between - (length - 1) * noise) / max(total, 1e-30))
    without = torch.tensor(shares, dtype=torch.float64)
    reach = 1.96 * math.sqrt(left / count * float((without - without.mean()).square().sum()))
    value = unbiased_share(states_NTD)
    return value - reach, value + reach


def stable_rank(states_NTD: Float[Tensor, "N T D"]) -> float:
    """Σσ² / σ₁² of the mean positions: how many directions they use."""
    place = states_NTD.double().mean(0)
    values = torch.linalg.svdvals(place - place.mean(0)).square()
    return float(values.sum() / values[0].clamp_min(1e-30))
