"""Logits in pieces are the logits in one piece, whatever their number and wherever a piece ends."""

from __future__ import annotations

import pytest
import torch

from clockhands import positions
from clockhands.attention import attend
from clockhands.schemes import CATALOGUE, Sizes, build, pieces

HEADS, WIDTH, LENGTH = 3, 8, 13


@pytest.mark.parametrize(("name", "options"), [("cope", {"max_position": 5}), ("dape", {}), ("dape", {"hidden": 5})])
@pytest.mark.parametrize("elements", [1, 40, 10**6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_a_gradient_the_values_are_those_with_one(
    name: str, options: dict[str, int], elements: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a gradient is needed, nothing is divided."""
    monkeypatch.setattr(pieces, "ELEMENTS", elements)
    scheme, pos = build(CATALOGUE, name, Sizes(24, 24, HEADS, WIDTH, 1, True), options), positions.count_up(2, LENGTH)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.add_(torch.randn(parameter.shape))
    q, k, v = (torch.randn(2, HEADS, LENGTH, WIDTH, dtype=dtype) for _ in range(3))
    padding = torch.arange(LENGTH).ge(2)[None, None, None].expand(2, 1, 1, -1)
    whole = attend(scheme, q.clone().requires_grad_(), k, v, pos, pos, padding, causal=True)
    with torch.no_grad():
        divided = attend(scheme, q, k, v, pos, pos, padding, causal=True)
    close = 1e-5 if dtype == torch.float32 else 4e-2
    torch.testing.assert_close(divided, whole, rtol=close, atol=close)


def test_pieces_are_all_rows_of_all_heads_once() -> None:
    seen = torch.zeros(2, 3, 7, dtype=torch.int64)
    for row, head, part in pieces.list_pieces(torch.empty(2, 3, 7, pieces.ELEMENTS // 2)):
        seen[row, head, part] += 1
        assert part.stop - part.start <= 2
    assert bool((seen == 1).all())
