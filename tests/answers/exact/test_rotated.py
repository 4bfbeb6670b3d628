"""Rotary embedding: what is equal is equal to the last digits, and what is wrong is far off."""

from __future__ import annotations

import math

import pytest
import torch
from exact.rotated import (
    compare_cached_keys,
    compare_layouts,
    compare_padded,
    compare_shifted,
    compare_values,
    measure_partial,
    rotate,
)


def test_a_pair_is_rotated_by_its_angle() -> None:
    row = rotate(torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([2]))
    assert row[0].tolist() == pytest.approx([math.cos(2), math.sin(2)])


def test_what_changes_nothing_and_what_does() -> None:
    layouts, cached, values, shifted = compare_layouts(), compare_cached_keys(), compare_values(), compare_shifted()
    equal = (
        layouts["permuted"],
        cached["as cached"],
        cached["moved, rotated on"],
        values["plain values"],
        values["rotated back"],
        shifted["rotary"],
        shifted["rotary, 1"],
        shifted["rotary, 500"],
    )
    other = (
        layouts["not permuted"],
        layouts["queries alone permuted"],
        cached["base changed"],
        cached["moved, left"],
        values["rotated values"],
        shifted["added"],
        shifted["added, 500"],
    )
    assert max(equal) < 1e-12 and min(other) > 0.5


def test_padding_needs_a_mask_and_an_added_sinusoid_needs_the_count_too() -> None:
    change = compare_padded()
    equal = (change["rotary, both"], change["added, both"], change["rotary, mask alone"])
    other = (change["added, mask alone"], change["rotary, no mask"], change["added, no mask"])
    assert max(equal) < 1e-12 and min(other) > 0.1


def test_a_later_start_changes_more_of_an_added_sinusoid() -> None:
    shifted = compare_shifted()
    assert 0.01 < shifted["added, 1"] < shifted["added"]


def test_unrotated_pairs_keep_their_score() -> None:
    told = measure_partial()
    expected = sum(math.cos(100 / 10_000 ** (2 * c / 128)) for c in range(64)) / 64
    assert told["all, 100"] == pytest.approx(100 * expected)
    quarter = (48 + sum(math.cos(100 / 10_000 ** (2 * c / 32)) for c in range(16))) / 64
    assert told["quarter, 100"] == pytest.approx(100 * quarter)
