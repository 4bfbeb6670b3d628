"""Logits in pieces that stay in a processor's cache, for schemes that compute with each logit many times."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from clockhands.schemes.position_checks import is_traced
from clockhands.shapes import Tensor

ELEMENTS = 1 << 15
"""About how many logits a piece has."""


def reads_in_pieces(*tensors: Tensor) -> bool:
    """Return whether pieces are faster: on a CPU, if no gradient needs what lies between and nothing is compiled."""
    needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    return tensors[0].device.type == "cpu" and not needs_gradient and not is_traced()


def list_pieces(logits_BHST: Tensor) -> Iterator[tuple[int, int, slice]]:
    """Yield a batch row, a head and rows of queries for each piece of logits [B, H, S, T]."""
    batch, heads, queries, keys = logits_BHST.shape
    for row in range(batch):
        for head in range(heads):
            for part in split_rows(queries, keys):
                yield row, head, part


def split_rows(queries: int, keys: int) -> Iterator[slice]:
    """Yield the queries of each piece, if each of them has so many logits."""
    # At least one query a piece, however many keys it has.
    step = max(1, ELEMENTS // max(1, keys))
    for start in range(0, queries, step):
        yield slice(start, min(start + step, queries))
