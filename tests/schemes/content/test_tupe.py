"""TUPE beside its oracle: the rows that it may compute once."""

from __future__ import annotations

import torch

from clockhands.schemes import TUPE, AttentionInputs


def test_rows_of_queries_may_differ_where_those_of_keys_are_shared() -> None:
    """Decoding with a cache: the two texts stand at different positions, the expanded key positions are the same."""
    scheme = TUPE(12, 2, 6, max_length=9)
    q, k = torch.zeros(2, 2, 1, 6), torch.zeros(2, 2, 9, 6)
    query_positions, key_positions = torch.tensor([[3], [7]]), torch.arange(9)[None].expand(2, -1)
    together = scheme.bias(AttentionInputs(q, k, query_positions, key_positions))
    apart = [scheme.bias(AttentionInputs(q[:1], k[:1], one[None], key_positions[:1])) for one in query_positions]
    torch.testing.assert_close(together.expand(2, -1, -1, -1), torch.cat(apart))
    assert not torch.allclose(*apart)
