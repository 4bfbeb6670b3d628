"""TUPE beside its oracle: the rows that it may compute once."""

from __future__ import annotations

import torch

from clockhands.schemes import TUPE
from tests.schemes.peers import compute_bias


def test_rows_of_queries_may_differ_where_those_of_keys_are_shared() -> None:
    """Decoding with a cache: the two texts stand at different positions, the expanded key positions are the same."""
    scheme, keys = TUPE(12, 2, 6, max_length=9), torch.arange(9)[None]
    together = compute_bias(scheme, torch.tensor([[3], [7]]), keys.expand(2, -1), 2, 6)
    apart = [compute_bias(scheme, torch.tensor([[place]]), keys, 2, 6) for place in (3, 7)]
    torch.testing.assert_close(together.expand(2, -1, -1, -1), torch.cat(apart))
    assert not torch.allclose(*apart)
