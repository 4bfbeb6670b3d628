"""What the words and the positions of query and key each add to a layer's scores, as shares of their variance."""

import math
from itertools import product

import torch
from torch import nn


def compute(x_NTD: torch.Tensor, query: nn.Linear, key: nn.Linear, heads: int) -> dict[str, float]:
    covariance, variance = dict.fromkeys(product(("content", "position", "constant"), repeat=2), 0.0), 0.0
    cut = lambda y_TD: y_TD.unflatten(-1, (heads, -1)).transpose(0, 1)  # noqa: E731
    for half in (0, 1):
        by_place_TD = x_NTD[1 - half :: 2].mean(0)  # of the other half of the texts
        mean_D = by_place_TD.mean(0)
        for x_TD in x_NTD[half::2]:
            parts = {
                "content": x_TD - by_place_TD,
                "position": by_place_TD - mean_D,
                "constant": mean_D.expand_as(x_TD),
            }
            q = {
                name: part @ query.weight.T + (query.bias if name == "constant" else 0) for name, part in parts.items()
            }
            k = {name: part @ key.weight.T + (key.bias if name == "constant" else 0) for name, part in parts.items()}
            scores = {(a, b): cut(q[a]) @ cut(k[b]).mT * math.sqrt(heads / query.out_features) for a, b in covariance}
            total = sum(scores.values())
            total = total - total.mean(-1, keepdim=True)  # the softmax sees no constant of a row
            for pair, score in scores.items():
                covariance[pair] += float((score * total).sum())
            variance += float(total.square().sum())
    return {f"{a}–{b}": value / variance for (a, b), value in covariance.items()}
