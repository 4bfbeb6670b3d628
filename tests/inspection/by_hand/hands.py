"""How many tokens each hand of a sinusoidal table takes for one turn: from the angle of its two columns, row by row."""

import math

import torch


def compute(rows_ND: torch.Tensor) -> list[float]:
    x, y = rows_ND[:, 0::2], rows_ND[:, 1::2]
    step = torch.atan2(y, x).diff(dim=0)
    step = torch.remainder(step + math.pi, 2 * math.pi) - math.pi  # the short way round
    return sorted((2 * math.pi / step.mean(0).abs()).tolist())
