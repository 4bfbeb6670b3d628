"""Position tables with a known truth, in a BERT that adds them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from clockhands.models.subject import Subject

from ..planted import make_bert


def learned(rows_ND: torch.Tensor, dtype: torch.dtype = torch.float32) -> Subject:
    """A BERT that adds these rows."""
    count, width = rows_ND.shape
    model = make_bert(vocab_size=50, hidden_size=width, max_position_embeddings=count)
    with torch.no_grad():
        model.embeddings.position_embeddings.weight.copy_(rows_ND)
    return Subject.of(model.to(dtype))


def sinusoid(count: int, width: int) -> torch.Tensor:
    """The encoding of Vaswani et al. 2017, from its formula."""
    speeds = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.arange(count)[:, None] * speeds
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


def mixed(count: int, width: int, periods: Sequence[float], noise: float = 0.1, seed: int = 0) -> torch.Tensor:
    """Hands of these periods, rotated into all columns, with noise."""
    generator = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.arange(count)[:, None] / torch.tensor(periods)
    rows = torch.cat([angle.sin(), angle.cos()], dim=1)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    return rows @ turn[: rows.shape[1]] + noise * torch.randn(count, width, generator=generator)


def walk(count: int, width: int, seed: int = 0) -> torch.Tensor:
    """A random walk."""
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)).cumsum(0)
