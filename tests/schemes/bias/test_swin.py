"""Swin's biases against transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import SwinConfig, Swinv2Config
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

from clockhands import positions
from clockhands.errors import PositionError
from clockhands.schemes import LogCPB, SwinTable
from tests.schemes.peers import agree, compute_bias


@pytest.mark.parametrize("window", [(3, 3), (2, 5)])
def test_table_and_its_gradient_are_those_of_swin(window: tuple[int, int]) -> None:
    ours = SwinTable(4, rows=window[0], columns=window[1])
    known = ours.to_hf_config()
    assert (known is None) == (window[0] != window[1])
    theirs = SwinRelativePositionBias(4, window if known is None else (SwinConfig(**known).window_size,) * 2)
    with torch.no_grad():
        theirs.relative_position_bias_table.copy_(ours.table_RH)
    pairs = [(ours.table_RH, theirs.relative_position_bias_table)]
    agree(lambda: compute_bias(ours, positions.make_grid(1, *window)), theirs, pairs)


@pytest.mark.parametrize("window", [(4, 4), (3, 5)])
def test_continuous_bias_and_its_gradients_are_those_of_swin_v2(window: tuple[int, int]) -> None:
    theirs = Swinv2SelfAttention(Swinv2Config(), 32, 4, window)
    ours = LogCPB(4, rows=window[0], columns=window[1])
    peer = theirs.continuous_position_bias_mlp
    first, last = ours.mlp.linears()
    pairs = [(first.weight, peer[0].weight), (first.bias, peer[0].bias), (last.weight, peer[2].weight)]
    with torch.no_grad():
        for mine, other in pairs:
            mine.copy_(other)
    cells = window[0] * window[1]

    def swin() -> torch.Tensor:
        table = peer(theirs.relative_coords_table).view(-1, 4)
        picked = table[theirs.relative_position_index.view(-1)].view(cells, cells, 4)
        return 16 * torch.sigmoid(picked.permute(2, 0, 1))[None]

    agree(lambda: compute_bias(ours, positions.make_grid(1, *window)), swin, pairs, atol=1e-5)


def test_an_offset_that_the_window_does_not_have_is_refused() -> None:
    with pytest.raises(PositionError, match=r"1 rows and 4 columns apart, but the window of swin is 3 x 3"):
        compute_bias(SwinTable(4, rows=3), positions.make_grid(1, 2, 5))


def test_every_row_of_one_grid_has_its_score_mod() -> None:
    """``positions.make_grid`` gives all rows the same memory."""
    scheme, grid = SwinTable(4, rows=3, columns=4), positions.make_grid(3, 3, 4)
    modify, bias = scheme.score_mod(grid, grid), compute_bias(scheme, grid)
    assert bias.shape == (1, 4, 12, 12)
    at = [torch.tensor(n) for n in (2, 3, 7, 1)]
    assert float(modify(torch.zeros(()), *at)) == float(bias[0, 3, 7, 1])


@pytest.mark.parametrize("made", [SwinTable(2), LogCPB(2)], ids=["swin", "log-cpb"])
@pytest.mark.parametrize("queries", [positions.count_up(1, 3), positions.make_grid(1, 2, 2)], ids=["both", "keys"])
def test_one_coordinate_is_refused(queries: torch.Tensor, made: SwinTable | LogCPB) -> None:
    with pytest.raises(PositionError, match=r"needs two coordinates a token, \[B, S, 2\], and got \[1, 3\]"):
        compute_bias(made, queries, positions.count_up(1, 3), heads=2)
