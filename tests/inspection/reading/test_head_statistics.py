"""Which queries are counted, and how far a head looks, under masks of every kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clockhands.inspection.reading.head_statistics import MAX_OFFSET, HeadStatistics, HeadSums, _choose_queries

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


def _attend(weights_ST: torch.Tensor, mask_ST: torch.Tensor) -> HeadStatistics:
    """The statistics of one head that attends like this in each of nine texts."""
    shape = (9, 1, *weights_ST.shape)
    call: Any = SimpleNamespace(weights_BHST=weights_ST.expand(shape), mask_BHST=mask_ST.expand(shape))
    sums = HeadSums(torch.ones(len(mask_ST), dtype=torch.bool))
    sums.add(call)
    return sums.summarise()


@pytest.mark.parametrize("length", [8, 20, 33, 60])
@pytest.mark.parametrize("causal", [True, False])
def test_a_head_of_the_first_token_is_named_so_in_windows_of_every_length(length: int, causal: bool) -> None:
    """Only the last query has a key as far before it as the window is long: the head was named after that offset."""
    mask = torch.ones(length, length, dtype=torch.bool)
    mask = mask.tril() if causal else mask
    weights = torch.eye(length) * 0.1
    weights[:, 0] += 0.9
    found = _attend(weights, mask)
    assert found.name_head(0) == "first position"
    assert (
        float(found.attention_by_offset_HJ[0, MAX_OFFSET - min(length - 1, MAX_OFFSET)])
        > 0.9 / (length - MAX_OFFSET + 1 if length > MAX_OFFSET else 1) * 0.99
    )
    before = torch.diag(torch.full((length - 2,), 1.0), -2)
    before[:2, 0] = 1.0
    assert _attend(before, mask).name_head(0) == "offset -2"
    assert float(_attend(before, mask).favourite_share_H[0]) == pytest.approx(1.0)
