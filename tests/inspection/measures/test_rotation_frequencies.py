"""Pairs of channels that carry the logits have their shares."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .. import planted
from ..planted import answer


@pytest.mark.parametrize(("pairs", "least", "most"), [([0, 1], 0.9, 1.01), ([5, 6, 7], -0.01, 0.1)])
def test_which_pairs_carry_the_logits(pairs: list[int], least: float, most: float) -> None:
    """Only fast pairs of the rotation, then only slow ones: 16 dimensions of a head are 8 pairs, half a head apart."""
    model: Any = planted.uniform("encoder", "rope")
    with torch.no_grad():
        rows = model.encoder.blocks[0].attention.qkv.weight[:64].unflatten(0, (2, 2, 16))
        both = [*pairs, *(pair + 8 for pair in pairs)]
        rows[:, :, both] = torch.randn(2, 2, len(both), 32, generator=torch.Generator().manual_seed(0))
    subject, recorded = planted.subject_of(model)
    found = answer("kernel.frequencies", subject, recorded)
    assert least < found.value < most  # type: ignore[operator]
    assert found.verdict.startswith("The fastest quarter of the rotated pairs carries")
    assert found.interval is not None and found.interval[0] <= found.value <= found.interval[1]  # type: ignore[operator]
    assert found.references[0].name == "equal pairs" and found.references[0].value == 0.25
