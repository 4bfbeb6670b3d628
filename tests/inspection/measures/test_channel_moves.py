"""How far positions move each channel, against a case computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from clockhands.inspection.measures.channel_moves import compute_channel_moves, measure_channel_moves

from . import readings


def test_moves_are_those_computed_by_hand() -> None:
    """Channel 0: positions 1, 3 (mean 2, deviation 1) over words of deviation 2; channel 1 is shifted alone."""
    moves = compute_channel_moves(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), torch.tensor([4.0, 25.0]))
    assert moves.varying_D.tolist() == pytest.approx([0.5, 0.0])
    assert moves.shift_D.tolist() == pytest.approx([1.0, 1.0])
    assert moves.num_still == 1
    assert moves.average_part(0, 0.5) == pytest.approx(0.5)
    assert moves.average_part(0, 1) == pytest.approx(math.sqrt(0.125))
    with pytest.raises(ValueError, match="tokens do not vary in every channel"):
        compute_channel_moves(torch.ones(2, 2), torch.tensor([1.0, 0.0]))


def test_of_a_model_they_are_those_of_its_text_and_of_the_positions_in_use() -> None:
    """Positions move the lower half of the channels alone; row 0, which is huge, is left out."""
    positions = readings.half_rows(32, upper=False)
    positions[0] = 1e3
    subject, recorded = readings.with_tables(readings.random_rows(200), positions)
    tables = subject.read_tables(recorded.length)
    assert tables is not None
    moves = measure_channel_moves(tables, recorded)
    assert moves is not None and moves.num_still == 32
    words_n = tables.tokens_VD[recorded.ids_NT[:, 1:].flatten(), 3].double()
    ratio = float(positions[1:, 3].double().std(correction=0) / words_n.std(correction=0))
    assert float(moves.varying_D[3]) == pytest.approx(ratio, rel=1e-5)
    equal = replace(tables, tokens_VD=tables.tokens_VD.index_fill(1, torch.tensor([7]), 2.0))
    assert measure_channel_moves(equal, recorded) is None
