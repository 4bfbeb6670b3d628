"""The index against what is known of floating point."""

from __future__ import annotations

import math

import pytest
import torch
from exact.index import count_whole, measure_index


def test_low_precision_counts_so_far() -> None:
    """2^8 and 2^11: the bits of the significand, with the one that is not stored."""
    assert (count_whole(torch.bfloat16), count_whole(torch.float16)) == (256, 2048)


def test_a_step_of_the_share_depends_on_the_length() -> None:
    told = measure_index()
    assert told["step of 5 words"] == 0.25 and told["step of 500 words"] == pytest.approx(1 / 499)
    assert told["over the word at 5000"] == pytest.approx(5000 / math.sqrt(512))
