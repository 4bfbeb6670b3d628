"""Which coordinate turns which pair, at the sizes of the published models."""

from __future__ import annotations

from clockhands.schemes import MRoPE


def test_interleaved_pairs_are_those_of_qwen3_vl() -> None:
    """64 pairs in sections of 24, 20 and 20: t, h, w in turn, and t alone once h and w have theirs."""
    axes = MRoPE(128, sections=(24, 20, 20), order="interleaved").list_axes_of_pairs()
    assert axes == [0, 1, 2] * 20 + [0] * 4
    assert [axes.count(axis) for axis in range(3)] == [24, 20, 20]


def test_pairs_in_blocks_are_those_of_qwen2_vl() -> None:
    assert MRoPE(128, sections=(16, 24, 24)).list_axes_of_pairs() == [0] * 16 + [1] * 24 + [2] * 24
