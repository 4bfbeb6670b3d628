"""Rotary layouts: a permutation of the rows of W_q and W_k within each head, and nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clockhands import positions
from clockhands.attention import attend
from clockhands.errors import CheckpointError
from clockhands.schemes import RoPE
from clockhands.schemes.convert import compute_row_order, convert_rows, convert_state_dict


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 5), st.booleans())
def test_there_and_back_is_exact(heads: int, pairs: int, rest: int, bias: bool) -> None:
    width = 2 * pairs + rest
    weight = torch.randn(heads * width) if bias else torch.randn(heads * width, 3)
    there = convert_rows(weight, heads, "half", 2 * pairs)
    assert torch.equal(convert_rows(there, heads, "interleaved", 2 * pairs), weight)


def test_the_order_by_hand() -> None:
    assert compute_row_order(8, 6, "half").tolist() == [0, 2, 4, 1, 3, 5, 6, 7]
    assert compute_row_order(8, 6, "interleaved").tolist() == [0, 3, 1, 4, 2, 5, 6, 7]


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_trap_18_layouts_are_one_model_after_conversion_and_another_before(fraction: float) -> None:
    heads, head_dim, length = 3, 8, 6
    x, value = torch.randn(1, length, 12), torch.randn(1, heads, length, head_dim)
    weights = [torch.randn(heads * head_dim, 12) for _ in "qk"]
    pos = positions.count_up(1, length)

    def out(layout: str, rows: list[torch.Tensor]) -> torch.Tensor:
        q, k = ((x @ w.T).unflatten(-1, (heads, head_dim)).transpose(1, 2) for w in rows)
        scheme = RoPE(head_dim, layout=layout, fraction=fraction)  # type: ignore[arg-type]
        return attend(scheme, q, k, value, pos, pos, causal=True)

    rotated = int(head_dim * fraction)
    converted = [convert_rows(w, heads, "half", rotated) for w in weights]
    torch.testing.assert_close(out("half", converted), out("interleaved", weights))
    assert (out("half", weights) - out("interleaved", weights)).abs().max() > 0.1


def test_a_state_dict_changes_only_where_it_is_told() -> None:
    state = {"a.q_proj.weight": torch.randn(8, 4), "a.v_proj.weight": torch.randn(8, 4)}
    got = convert_state_dict(state, lambda name: 2 if "q_proj" in name else None, "half")
    assert torch.equal(got["a.v_proj.weight"], state["a.v_proj.weight"])
    assert torch.equal(got["a.q_proj.weight"], convert_rows(state["a.q_proj.weight"], 2, "half"))


def test_what_cannot_be_converted_is_refused() -> None:
    with pytest.raises(CheckpointError, match="7 rows cannot be split into 2 heads"):
        convert_rows(torch.zeros(7, 2), 2, "half")
    with pytest.raises(CheckpointError, match="3 of 8 channels cannot be rotated in pairs"):
        compute_row_order(8, 3, "half")
    with pytest.raises(CheckpointError, match="nothing to convert"):
        convert_state_dict({"x": torch.zeros(2, 2)}, lambda name: None, "half")
