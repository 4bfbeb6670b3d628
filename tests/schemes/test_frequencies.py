"""The hands of the clock are exact at any position, and what is remembered of them is never wrong."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clockhands import positions
from clockhands.errors import PositionError
from clockhands.schemes import RoPE, Sinusoidal
from clockhands.schemes.absolute.sinusoidal import encode_as_written
from clockhands.schemes.frequencies import (
    check_axes,
    compute_cos_sin,
    compute_frequencies,
    compute_sin_cos_pairs,
    take_axis,
    take_shared_row,
)


@given(st.integers(0, 2_000_000), st.integers(1, 700), st.sampled_from([torch.float32, torch.float64]))
def test_long_runs_take_the_addition_theorem_and_stay_exact(start: int, length: int, dtype: torch.dtype) -> None:
    pos, omega = positions.count_up(1, length, start=start), compute_frequencies(16, 10_000.0)
    angle = pos.double()[..., None] * omega
    limit = 3.1e-8 if dtype == torch.float32 else 3e-9
    cosine, sine = compute_cos_sin(pos, omega, dtype)
    assert (cosine.double() - angle.cos()).abs().max() <= limit
    assert (sine.double() - angle.sin()).abs().max() <= limit
    assert torch.equal(compute_sin_cos_pairs(pos, omega, dtype), torch.stack([sine, cosine], dim=-1))


@pytest.mark.parametrize("length", [7, 600])
def test_sinusoids_are_as_the_paper_writes_them(length: int) -> None:
    pos = torch.arange(length)[None] + torch.tensor([[0], [99_000]])
    written = encode_as_written(pos, 16, 500.0)
    torch.testing.assert_close(Sinusoidal(16, base=500.0).encode(pos), written, atol=1e-7, rtol=0)


def test_gaps_in_a_long_row_are_seen() -> None:
    pos = torch.arange(600)[None].clone()
    pos[0, 300:] += 5
    whole = Sinusoidal(16).encode(pos)
    torch.testing.assert_close(whole[:, 300:310], Sinusoidal(16).encode(pos[:, 300:310]), atol=1e-7, rtol=0)


def test_a_scheme_that_has_run_can_be_copied_and_pickled() -> None:
    scheme, pos, q = RoPE(8), torch.arange(3)[None], torch.randn(1, 1, 3, 8)
    wanted = scheme.rotate(q, q, pos, pos)[0]
    for twin in (copy.deepcopy(scheme), pickle.loads(pickle.dumps(scheme))):
        assert torch.equal(twin.rotate(q, q, pos, pos)[0], wanted)


def test_rows_that_are_one_memory_are_computed_once() -> None:
    assert take_shared_row(positions.count_up(5, 3)).shape == (1, 3)
    assert take_shared_row(positions.count_up(5, 3).clone()).shape == (5, 3)


@pytest.mark.parametrize(("shape", "have"), [((1, 3), 1), ((2, 5, 3), 3), ((3, 5, 1), 1)])
def test_another_number_of_coordinates_is_told(shape: tuple[int, ...], have: int) -> None:
    with pytest.raises(PositionError, match=f"axial encodes 2 coordinates, and these positions have {have};"):
        check_axes(torch.zeros(shape), 2, "axial")
    with pytest.raises(PositionError, match="rope reads one coordinate, and these positions have 2"):
        take_axis(torch.zeros(1, 3, 2), "rope")
    assert take_axis(torch.zeros(1, 4, 3, 1), "rope").shape == (1, 4, 3)
