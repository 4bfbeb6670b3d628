"""xPos keeps one origin for queries and keys, and refuses spans that its factors cannot hold."""

from __future__ import annotations

import pytest
import torch

from clockhands import positions
from clockhands.errors import PositionError
from clockhands.schemes import XPos


@pytest.mark.parametrize("keys", [16, 128, 1024])
def test_trap_24_the_last_query_scores_the_same_beside_cached_keys(keys: int) -> None:
    scheme = XPos(32)
    q, k = torch.randn(1, 2, keys, 32), torch.randn(1, 2, keys, 32)
    pos = positions.count_up(1, keys)
    whole_q, whole_k = scheme.rotate(q, k, pos, pos)
    last_q, cached_k = scheme.rotate(q[:, :, -1:], k, pos[:, -1:], pos)
    torch.testing.assert_close((last_q @ cached_k.mT), (whole_q @ whole_k.mT)[:, :, -1:], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 36_260), (torch.float16, 4_532)])
def test_a_span_that_overflows_is_refused(dtype: torch.dtype, most: int) -> None:
    scheme, x = XPos(8), torch.ones(1, 1, 2, 8, dtype=dtype)
    scheme.rotate(x, x, torch.tensor([[0, most]]), torch.tensor([[0, most]]))
    with pytest.raises(PositionError, match=rf"stretch over {most + 1} positions, and xpos in .* holds {most} at most"):
        scheme.rotate(x, x, torch.tensor([[0, most + 1]]), torch.tensor([[0, most + 1]]))
