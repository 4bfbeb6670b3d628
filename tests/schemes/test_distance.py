"""Biases by distance, however their positions lie in memory."""

from __future__ import annotations

import pytest
import torch

from clockhands.attention import attend
from clockhands.errors import PositionError
from clockhands.schemes import CATALOGUE, Alibi, AttentionInputs, Sizes, build
from clockhands.schemes.distance import compute_distances


def test_three_texts_at_the_same_positions_have_the_bias_of_each_alone() -> None:
    """Expanded rows of positions are one row in memory, and what is computed once must serve all."""
    scheme = Alibi(2)
    q = k = torch.zeros(3, 2, 5, 4)
    shared = torch.arange(5)[None].expand(3, -1)
    expected = scheme.bias(AttentionInputs(q, k, shared.contiguous(), shared.contiguous()))
    torch.testing.assert_close(scheme.bias(AttentionInputs(q, k, shared, shared)).expand_as(expected), expected)
    attended = [attend(scheme, q, k, k + 1, at, at, causal=True) for at in (shared, shared.contiguous())]
    torch.testing.assert_close(*attended)


def test_positions_of_several_coordinates_have_no_distance_whichever_side_has_them() -> None:
    line, plane = torch.zeros(1, 4), torch.zeros(1, 4, 2)
    for query, key in ((plane, line), (line, plane), (plane, plane)):
        with pytest.raises(PositionError, match="a distance needs positions of one coordinate"):
            compute_distances(query, key)


@pytest.mark.parametrize(("rows", "length"), [(0, 5), (2, 0), (0, 0)])
@pytest.mark.parametrize("name", ["alibi", "t5", "kerple", "rope", "shaw", "cope", "none"])
def test_nothing_attends_to_nothing(name: str, rows: int, length: int) -> None:
    """The last batch of a sharded data set may be empty: forward and backward pass do nothing."""
    scheme = build(CATALOGUE, name, Sizes(16, 16, 2, 8))
    x = torch.zeros(rows, 2, length, 8, requires_grad=True)
    pos = torch.arange(length).repeat(rows, 1)
    out = attend(scheme, x, x, x[..., :4], pos, pos, causal=True)
    out.sum().backward()
    assert out.shape == (rows, 2, length, 4) and x.grad is not None and x.grad.shape == x.shape
