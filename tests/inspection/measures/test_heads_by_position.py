"""Heads that attend by position are counted and named."""

from __future__ import annotations

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
            "head gives half of its attention to one offset or to the first token."
        )
        assert (flat.value, flat.interval) == (0.0, None), "a count of none has no interval"
    found = answer_heads("heads.positional", planted.heads_of(planted.subject_of(planted.copying())[1]))
    assert found.value == 2.0 and found.interval == (2.0, 2.0)
    assert "layer 1 head 0: previous token" in found.verdict and found.light == "good"
