"""An encoder without positions is equivariant, and one with a mask or positions is not."""

from __future__ import annotations

from exact.order import measure_permutation


def test_only_without_positions_and_mask_it_is_a_bag() -> None:
    told = measure_permutation()
    assert told["none"] < 1e-12
    assert told["sinusoid"] > 0.05 and told["causal"] > 0.05
    assert told["causal percent"] == 100 * told["causal"]
