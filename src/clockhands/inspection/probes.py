"""Reading a property back out of vectors: ridge regression, and a small network where a line cannot see."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from clockhands.shapes import Float, Int, Tensor

STRENGTH = 1e-3
"""Ridge strength relative to the mean variance of a dimension: without one, n ≈ d gives a spike of error."""


def ridge(
    train_ND: Float[Tensor, "N D"], target_NC: Float[Tensor, "N C"], test_MD: Float[Tensor, "M D"]
) -> Float[Tensor, "M C"]:
    """Predictions on ``test`` of a ridge regression with intercept."""
    mean, target_mean = train_ND.mean(0), target_NC.mean(0)
    x, y = train_ND - mean, target_NC - target_mean
    gram = (x.T @ x).double()
    gram += STRENGTH * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64, device=gram.device)
    weights = torch.linalg.solve(gram, (x.T @ y).double()).to(x.dtype)
    return (test_MD - mean) @ weights + target_mean


def classify(
    train_ND: Float[Tensor, "N D"],
    labels_N: Int[Tensor, " N"],
    test_MD: Float[Tensor, "M D"],
    classes: int,
) -> Int[Tensor, " M"]:
    """The class whose ridge-regressed indicator is largest."""
    indicator = F.one_hot(labels_N, classes).to(train_ND.dtype)
    return ridge(train_ND, indicator, test_MD).argmax(-1)


def nearest_row(
    predicted_MD: Float[Tensor, "M D"], rows_VD: Float[Tensor, "V D"], block: int = 1024
) -> Int[Tensor, " M"]:
    """The row with the largest cosine to each prediction."""
    unit = F.normalize(rows_VD, dim=-1)
    return torch.cat([(part @ unit.T).argmax(-1) for part in predicted_MD.split(block)])


def network_error(
    train_ND: Float[Tensor, "N D"],
    places_N: Float[Tensor, " N"],
    test_MD: Float[Tensor, "M D"],
    answers_M: Float[Tensor, " M"],
    steps: int = 300,
) -> float:
    """R² on ``test`` of a two-layer network with the log of the length as an extra input.

    A model without positional encoding can hold the place in the size of its vectors (Chi et al. 2023), where a linear
    probe is blind.
    """
    mean, spread = train_ND.mean(0), train_ND.std().clamp_min(1e-12)
    middle, unit = places_N.mean(), places_N.std().clamp_min(1e-12)

    def features(x: Tensor) -> Tensor:
        x = (x - mean) / spread
        return torch.cat([x, x.norm(dim=-1, keepdim=True).clamp_min(1e-12).log()], dim=-1)

    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        x, y = features(train_ND), ((places_N - middle) / unit)[:, None]
        net = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, 1)).to(x)
        optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
        for _ in range(steps):
            batch = torch.randint(len(x), (512,))
            loss = F.mse_loss(net(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        guess = net(features(test_MD)).squeeze(-1) * unit + middle
    return float(1 - (guess - answers_M).square().sum() / (answers_M - answers_M.mean()).square().sum())
