"""Waves against known identities."""

from __future__ import annotations

import math

import pytest
import torch
from exact.added import make_rows
from exact.waves import (
    count_hands,
    measure_orthogonality,
    measure_shift,
    measure_similarity,
    measure_stretch,
    rotate_rows,
)


def test_a_step_is_a_rotation() -> None:
    assert measure_shift()["error"] < 1e-11
    rows = make_rows(8, 5)
    assert torch.allclose(rotate_rows(rows, 1)[:4], rows[1:]) and not torch.allclose(rotate_rows(rows, 2)[:4], rows[1:])


def test_similarity_is_the_mean_cosine_of_the_hands() -> None:
    told = measure_similarity()
    expected = sum(math.cos(10 / 10_000 ** (2 * c / 512)) for c in range(256)) / 256
    assert told["at 10"] == pytest.approx(expected)


def test_hands_are_counted() -> None:
    told = count_hands()
    assert told["shortest"] == pytest.approx(2 * math.pi)
    assert told["longest"] == pytest.approx(2 * math.pi * 10_000 ** (510 / 512))
    # 2π·10000^(2c/512) > 512  <=>  c > 256·log(512/2π)/log(10000)
    first = math.floor(256 * math.log(512 / (2 * math.pi)) / math.log(10_000)) + 1
    assert told["never round in 512"] == 256 - first
    assert told["never round in 512, base 10"] == 0
    assert told["nearest rows, base 10"] > told["nearest rows, base 1000000"] > 0


def test_channels_are_not_orthogonal() -> None:
    told = measure_orthogonality()
    assert told["above 0.9"] > 1 and told["below 0.1"] < 99


def test_half_way_between_two_rows_a_hand_is_shorter() -> None:
    told = measure_stretch()
    assert told["fastest"] == pytest.approx(math.cos(0.5))
    squares = [math.cos(10_000 ** (-2 * c / 512) / 2) ** 2 for c in range(256)]
    assert told["row"] == pytest.approx(math.sqrt(sum(squares) / 256))
