"""Heads that attend by position are counted and named."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.reading.computed_attention import ComputedAttention
from clockhands.inspection.reading.head_statistics import HeadSums

from .. import planted
from .readings import (
    answer_heads,
)


def test_attention_by_position_is_counted_and_uniform_attention_is_not() -> None:
    """Uniform attention in float32 is the same in every text up to rounding, which is no effect of position."""
    for kind in ("encoder", "decoder"):
        flat = answer_heads("heads.positional", planted.heads_of(planted.subject_of(planted.uniform(kind))[1]))
        assert flat.verdict == (
            "0 of 2 heads attend mostly by position (0 surely and 0 possibly, by each head's own 95 % interval). No "
            "head gives half of its attention to one offset (of at most 32 tokens) or to one position."
        )
        assert (flat.value, flat.interval) == (0.0, None), "a count of none has no interval"
    found = answer_heads("heads.positional", planted.heads_of(planted.subject_of(planted.copying())[1]))
    assert found.value == 2.0 and found.interval == (2.0, 2.0)
    assert "layer 1 head 1: previous token" in found.verdict and found.light == "good"


@pytest.mark.parametrize(("offset", "named"), [(20, True), (40, False)])
def test_offsets_beyond_those_that_are_counted_are_not_denied(offset: int, named: bool) -> None:
    """A head that attends 40 back was said to give half of its attention to no offset."""
    length = 96
    weights = torch.zeros(9, 1, length, length)
    weights[:, 0, torch.arange(length), (torch.arange(length) - offset).clamp_min(0)] = 1.0
    sums = HeadSums(torch.ones(length, dtype=torch.bool))
    heads = torch.zeros(9, 1, length, 4)
    sums.add(ComputedAttention(torch.nn.Identity(), heads, heads, weights, weights, torch.ones_like(weights).bool()))
    verdict = answer_heads("heads.positional", sums.summarise()).verdict
    assert (f"layer 1 head 1: offset -{offset}" in verdict) == named
    assert ("No head gives half of its attention to one offset (of at most 32 tokens)" in verdict) == (not named)
