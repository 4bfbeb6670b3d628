"""Swin's biases against transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import SwinConfig, Swinv2Config
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

from clockhands import positions
from clockhands.errors import ConfigError, PositionError
from clockhands.schemes import AttentionInputs, LogCPB, SwinTable
from tests.schemes.peers import agree


@pytest.mark.parametrize("window", [(3, 3), (2, 5)])
def test_table_and_its_gradient_are_those_of_swin(window: tuple[int, int]) -> None:
    ours = SwinTable(4, rows=window[0], columns=window[1])
    known = ours.to_hf_config()
    assert (known is None) == (window[0] != window[1])
    theirs = SwinRelativePositionBias(4, window if known is None else (SwinConfig(**known).window_size,) * 2)
    with torch.no_grad():
        theirs.relative_position_bias_table.copy_(ours.table_RH)
    grid = positions.make_grid(1, *window)
    q = torch.zeros(1, 4, grid.shape[1], 8)
    agree(
        lambda: ours.bias(AttentionInputs(q, q, grid, grid)),
        theirs,
        [(ours.table_RH, theirs.relative_position_bias_table)],
    )


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
    grid = positions.make_grid(1, *window)
    q, cells = torch.zeros(1, 4, grid.shape[1], 8), grid.shape[1]

    def swin() -> torch.Tensor:
        table = peer(theirs.relative_coords_table).view(-1, 4)
        picked = table[theirs.relative_position_index.view(-1)].view(cells, cells, 4)
        return 16 * torch.sigmoid(picked.permute(2, 0, 1))[None]

    agree(lambda: ours.bias(AttentionInputs(q, q, grid, grid)), swin, pairs, atol=1e-5)


def test_an_offset_that_the_window_does_not_have_is_refused() -> None:
    grid, q = positions.make_grid(1, 2, 5), torch.zeros(1, 4, 10, 8)
    with pytest.raises(PositionError, match=r"1 rows and 4 columns apart, but the window of swin is 3 x 3"):
        SwinTable(4, rows=3).bias(AttentionInputs(q, q, grid, grid))


def test_every_row_of_one_grid_has_its_score_mod() -> None:
    """``positions.make_grid`` gives all rows the same memory."""
    scheme, grid, q = SwinTable(4, rows=3, columns=4), positions.make_grid(3, 3, 4), torch.zeros(3, 4, 12, 8)
    modify, bias = scheme.score_mod(grid, grid), scheme.bias(AttentionInputs(q, q, grid, grid))
    assert bias.shape == (1, 4, 12, 12)
    at = [torch.tensor(n) for n in (2, 3, 7, 1)]
    assert float(modify(torch.zeros(()), *at)) == float(bias[0, 3, 7, 1])


def test_one_coordinate_is_refused() -> None:
    pos, q = positions.count_up(1, 4), torch.zeros(1, 4, 4, 8)
    for scheme in (SwinTable(4), LogCPB(4)):
        with pytest.raises(PositionError, match=r"needs two coordinates a token, \[B, S, 2\], and got \[1, 4\]"):
            scheme.bias(AttentionInputs(q, q, pos, pos))


def test_an_empty_window_is_refused() -> None:
    for scheme in (SwinTable, LogCPB):
        with pytest.raises(ConfigError, match="rows is 0, but must be at least 1"):
            scheme(4, rows=0, columns=4)


@pytest.mark.parametrize("made", [SwinTable(2), LogCPB(2)], ids=["swin", "log-cpb"])
def test_keys_of_one_coordinate_are_refused_too(made: SwinTable | LogCPB) -> None:
    q, k = torch.ones(1, 2, 4, 8), torch.ones(1, 2, 3, 8)
    with pytest.raises(PositionError, match=r"needs two coordinates a token, \[B, S, 2\], and got \[1, 3\]"):
        made.bias(AttentionInputs(q, k, positions.make_grid(1, 2, 2), positions.count_up(1, 3)))
