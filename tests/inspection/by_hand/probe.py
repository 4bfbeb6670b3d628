"""The share of positions that a linear probe reads back from states, on texts that it was not fitted on."""

from collections.abc import Iterable

import torch


def compute(states_NTD: torch.Tensor, splits: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    length, shares = states_NTD.shape[1], []
    for fitted, judged in splits:
        x, y = states_NTD[fitted].flatten(0, 1).double(), torch.eye(length).double().repeat(len(fitted), 1)
        x_mean, y_mean = x.mean(0), y.mean(0)
        gram, cross = (x - x_mean).T @ (x - x_mean), (x - x_mean).T @ (y - y_mean)
        weights = torch.linalg.solve(gram + 1e-3 * gram.diagonal().mean() * torch.eye(len(gram)), cross)
        guess = ((states_NTD[judged].double() - x_mean) @ weights + y_mean).argmax(-1)
        shares.append((guess == torch.arange(length)).double().mean())
    return float(torch.stack(shares).mean())
