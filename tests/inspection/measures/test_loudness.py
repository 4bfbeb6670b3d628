"""How loud position is, of tables whose lengths are planted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clockhands.inspection.measures.loudness import STILL, measure_channel_moves
from clockhands.inspection.reading.reading import Reading

from .. import planted
from ..planted import LENGTH, VOCAB, answer
from .readings import half_rows, random_rows, with_tables


@pytest.mark.parametrize(
    ("factor", "sentence", "light"),
    [
        (1.0, "): a token is 0.98 times as long as a position, and tokens vary 1.00 times as much as positi", "good"),
        (0.001, "and positions have less than 1.0 % of the variance of both.", "bad"),
        (100.0, "times as much as positions, and positions have more than 80 % of the variance of both.", "warn"),
    ],
)
def test_loudness(factor: float, sentence: str, light: str) -> None:
    found = answer("loudness", *with_tables(random_rows(VOCAB), factor * random_rows(LENGTH, 1)))
    assert sentence in found.verdict and found.light == light


def test_position_0_is_left_out_of_loudness_and_overlap() -> None:
    """A row 0 of a thousand times the length changes no number, and is reported as an outlier."""
    positions = random_rows(LENGTH, 1)
    ordinary = [answer(name, *with_tables(random_rows(VOCAB), positions)) for name in ("loudness", "directions")]
    positions[0] *= 1000
    outlying = [answer(name, *with_tables(random_rows(VOCAB), positions)) for name in ("loudness", "directions")]
    assert [found.value for found in ordinary] == pytest.approx([found.value for found in outlying], rel=1e-5)
    assert "or under a third of it: 0." in outlying[0].verdict and "Outlying" not in ordinary[0].verdict
    assert all("Position 0 and special tokens are left out" in found.method for found in outlying)


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_equal_position_rows_are_no_fault(value: float) -> None:
    subject, recorded = with_tables(random_rows(VOCAB), torch.full((LENGTH, 64), value))
    loud = answer("loudness", subject, recorded)
    assert loud.value == pytest.approx(0.0, abs=1e-9) and loud.light == "bad"
    assert "all position rows are equal, so that they do not tell one position from another" in loud.verdict
    found = answer("recovery", subject, recorded)
    assert found.light == "skip" and "All position rows are equal" in found.verdict


def test_rows_of_any_size_have_the_same_shares() -> None:
    """The squares of rows of 1e18 leave the range of float32: loudness was nan %."""
    tokens, positions = random_rows(VOCAB), random_rows(LENGTH, 1)
    for name in ("loudness", "directions", "recovery"):
        usual, scaled = (answer(name, *with_tables(factor * tokens, factor * positions)) for factor in (1.0, 1e18))
        assert scaled.light == usual.light and "nan" not in scaled.verdict
        assert scaled.value == pytest.approx(usual.value, rel=1e-4)


def test_tokens_that_are_all_the_same_have_no_length_to_compare_with() -> None:
    subject, recorded = with_tables(random_rows(VOCAB), random_rows(LENGTH, 1))
    recorded.ids_NT.fill_(7)
    found = answer("loudness", subject, recorded)
    assert found.light == "warn" and "all tokens of this text have the same row, so that" in found.verdict
    assert found.verdict.startswith("Tokens carry 0.0 % of the input") and "times as long" not in found.verdict


@pytest.mark.parametrize("silent", [True, False])
def test_a_table_of_zeros_gives_no_ratio_without_training(silent: bool) -> None:
    scaled = planted.subject_of(planted.uniform("encoder", "learned", max_length=LENGTH))
    fresh = planted.subject_of(planted.uniform("encoder", "learned", max_length=LENGTH))
    if silent:
        with torch.no_grad():
            next(fresh[0].model.schemes.at_input.parameters()).zero_()  # type: ignore[union-attr, operator]
    verdict = answer("loudness", *scaled, control=Reading(*fresh)).verdict
    assert "Token rows are multiplied by 5.7; without that factor" in verdict
    assert (" without it)" in verdict) == (not silent)


def test_channels_move_by_the_text_and_the_positions_in_use() -> None:
    """Positions move the lower half of the channels alone; row 0, which is huge, is left out."""
    positions = half_rows(32, upper=False)
    positions[0] = 1e3
    subject, recorded = with_tables(random_rows(200), positions)
    tables = subject.read_tables(recorded.length)
    assert tables is not None
    moves = measure_channel_moves(tables, recorded)
    assert moves is not None and int((moves < STILL).sum()) == 32
    words_n = tables.tokens_VD[recorded.ids_NT[:, 1:].flatten(), 3].double()
    ratio = float(positions[1:, 3].double().std(correction=0) / words_n.std(correction=0))
    assert float(moves[3]) == pytest.approx(ratio, rel=1e-5)
    equal = replace(tables, tokens_VD=tables.tokens_VD.index_fill(1, torch.tensor([7]), 2.0))
    assert measure_channel_moves(equal, recorded) is None
