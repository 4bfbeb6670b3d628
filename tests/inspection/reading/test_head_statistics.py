"""Which queries are counted, and how far a head looks, under masks of every kind."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.reading.head_statistics import _choose_queries

SIZE = 32
BELOW = torch.ones(SIZE, SIZE, dtype=torch.bool).tril()
NEAR = torch.ones(SIZE, SIZE, dtype=torch.bool).tril(4).triu(-4)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (torch.ones(SIZE, SIZE, dtype=torch.bool), slice(8, 24)),
        (NEAR, slice(8, 24)),
        (BELOW, slice(4, SIZE)),
        (BELOW & NEAR, slice(4, SIZE)),
    ],
    ids=["all", "a window both ways", "causal", "a causal window"],
)
def test_both_sides_are_open_where_keys_lie_on_both(mask: torch.Tensor, expected: slice) -> None:
    """A window both ways was taken for causal, for its first query does not see the last key."""
    assert _choose_queries(mask) == expected
