"""The share of position alone in the variance of a layer's scores: the same whatever words a text has."""

import math

import torch
from torch import nn


def compute(x_NTD: torch.Tensor, query: nn.Linear, key: nn.Linear, heads: int) -> float:
    covariance = variance = 0.0

    def score(x_TD: torch.Tensor) -> torch.Tensor:
        q, k = (projection(x_TD).unflatten(-1, (heads, -1)).transpose(0, 1) for projection in (query, key))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        return scores - scores.mean(-1, keepdim=True)  # the softmax sees no constant of a row

    for half in (0, 1):
        # What no word changes are the scores of the mean state at each place, over the other half of the texts.
        alone = score(x_NTD[1 - half :: 2].mean(0))
        for x_TD in x_NTD[half::2]:
            real = score(x_TD)
            covariance += float((alone * real).sum())
            variance += float(real.square().sum())
    return covariance / variance
