"""Tokens and positions share directions where they were planted to, and do not where they were not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.inspection.measures.directions import (
    _compute_mixed_share,
    _judge,
    _read_projections,
    measure_mixed_share,
)
from clockhands.inspection.reading.capture import Capture
from clockhands.model import PositionConfig

from .. import planted
from ..planted import HALF, LENGTH, VOCAB, answer
from .readings import half_rows, random_rows, read_own, with_tables

MORE = ("warn", "share more directions than by chance")
UNDECIDED = ("info", "whether they share more directions than by chance, or fewer, is undecided")
EQUAL = ("skip", "All position rows are equal")


@pytest.mark.parametrize(
    ("tokens", "positions", "light", "sentence"),
    [
        (half_rows(VOCAB, True), half_rows(LENGTH, False), "good", "more nearly orthogonal than by chance"),
        (half_rows(VOCAB, True), half_rows(LENGTH, True), *MORE),
        (random_rows(VOCAB), random_rows(LENGTH, 7), *UNDECIDED),
        (random_rows(VOCAB), torch.zeros(LENGTH, 64), *EQUAL),
        (random_rows(VOCAB), torch.ones(LENGTH, 64), *EQUAL),
    ],
)
def test_directions(tokens: torch.Tensor, positions: torch.Tensor, light: str, sentence: str) -> None:
    found = answer("directions", *with_tables(tokens, positions))
    assert sentence in found.verdict and found.light == light
    if light != "skip":
        assert found.interval is not None and found.interval[0] <= found.value <= found.interval[1]  # type: ignore[operator]
    if light == "good":
        assert (found.value, found.table.rows[0][1]) == pytest.approx((0.0, 90.0), abs=1e-3), "orthogonal"


def test_the_axis_of_the_figure_says_what_is_drawn() -> None:
    found = answer("directions", *with_tables(random_rows(VOCAB), random_rows(LENGTH, 7)))
    assert found.figure is not None
    (panel,) = found.figure.panels
    density = torch.tensor(panel.marks[0].y)
    assert float(density.max()) == pytest.approx(1, abs=1e-2)
    assert panel.ylabel == "random rotations: normal density / its maximum"


def test_a_text_of_one_token_has_no_directions() -> None:
    subject, recorded = with_tables(random_rows(VOCAB), random_rows(LENGTH, 7))
    one = Capture(torch.full((8, LENGTH), 9), [], [], recorded.ordinary_T)
    assert "All token rows of the text are equal" in answer("directions", subject, one).verdict
    one.ids_NT[0, LENGTH // 2 :] = 8  # without the first text no direction is left for the interval
    assert "Nearly all of the text is one token" in answer("directions", subject, one).verdict


@pytest.mark.parametrize("z", [3.0, -3.0, 1.0])
def test_an_overlap_whose_interval_holds_chance_is_undecided(z: float) -> None:
    assert _judge(z, True) == UNDECIDED
    assert _judge(3.0, False) == (MORE[0], f"tokens and positions {MORE[1]}")


def test_concatenated_positions_share_no_directions() -> None:
    subject, recorded = read_own(PositionConfig("sinusoidal", combine="concatenate", width=16), tying="none")
    found = answer("directions", subject, recorded)
    said = "Tokens and positions are concatenated: they cannot share directions."
    assert (found.light, found.verdict) == ("skip", said)
    assert answer("directions", *read_own(PositionConfig("sinusoidal"))).light != "skip"


def _draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_a_head_that_keeps_the_two_apart_mixes_nothing() -> None:
    """Half of the head's channels read the subspace on both sides, the other half what is outside it."""
    basis = torch.eye(24, dtype=torch.float64)[:, :6]
    query, key = torch.zeros(8, 24, dtype=torch.float64), torch.zeros(8, 24, dtype=torch.float64)
    query[:4, :6], key[:4, :6], query[4:, 6:], key[4:, 6:] = _draw(4, 6), _draw(4, 6), _draw(4, 18), _draw(4, 18)
    mixed, reference = _compute_mixed_share(query, key, basis)
    assert mixed == pytest.approx(0, abs=1e-12) and reference > 0.2
    crossed, reference = _compute_mixed_share(query, torch.roll(key, 4, dims=0), basis)
    assert crossed == pytest.approx(1) and reference < 0.8, "each side reads the other's directions"


def test_a_head_drawn_at_random_mixes_as_the_reference_says() -> None:
    basis = torch.linalg.qr(_draw(64, 10)).Q
    shares = [_compute_mixed_share(_draw(32 + n, 64)[n:], _draw(48 + n, 64)[16 + n :], basis) for n in range(8)]
    mixed, reference = (sum(values) / 8 for values in zip(*shares, strict=True))
    assert mixed / reference == pytest.approx(1, abs=0.1)


def test_the_shares_are_those_of_sums_over_the_entries() -> None:
    query, key = _draw(4, 6), _draw(4, 6) + 1
    matrix = (query.T @ key).square()
    outside = matrix[:2, 2:].sum() + matrix[2:, :2].sum()
    mixed, _ = _compute_mixed_share(query, key, torch.eye(6, dtype=torch.float64)[:, :2])
    assert mixed == pytest.approx(float(outside / matrix.sum()))


def test_queries_and_keys_are_those_of_the_weights() -> None:
    """Of a model of transformers with biases, and of one of this project that rotates: at position 0 nothing turns."""
    model = planted.bert()
    _, recorded = planted.subject_of(model)
    attention = model.encoder.layer[0].attention.self
    query, key = _read_projections(recorded.layers[0])
    for found, linear in ((query, attention.query), (key, attention.key)):
        torch.testing.assert_close(found.flatten(0, 1).float(), linear.weight.data, atol=1e-5, rtol=1e-4)
    ours: Any = planted.uniform("encoder", "rope")
    weight = ours.encoder.blocks[0].attention.qkv.weight
    with torch.no_grad():
        weight[:64].normal_(generator=torch.Generator().manual_seed(0))
    _, recorded = planted.subject_of(ours)
    query, key = _read_projections(recorded.layers[0])
    torch.testing.assert_close(torch.cat([query, key]).flatten(0, 1).float(), weight.data[:64], atol=1e-4, rtol=1e-4)


def test_a_layer_that_reads_words_and_positions_apart_mixes_nothing() -> None:
    """In `previous_token` one head connects positions with positions and the other words with words.

    A little is left, because the positions' directions hold nine tenths of their variance.
    """
    model = planted.previous_token()
    _, recorded = planted.subject_of(model)
    apart = measure_mixed_share(recorded.layers[0], recorded.measured_T)
    assert apart is not None and apart[0] < 0.05 and apart[2] <= HALF
    key = model.encoder.layer[0].attention.self.key.weight
    with torch.no_grad():
        key.copy_(torch.cat([key[HALF:], key[:HALF]]))  # each head's keys now read what its queries do not
    crossed = measure_mixed_share(recorded.layers[0], recorded.measured_T)
    assert crossed is not None and crossed[0] > 5 * apart[0]


def test_without_positions_there_are_no_directions_of_theirs() -> None:
    _, recorded = planted.subject_of(planted.uniform("encoder", "none"), 64)
    assert measure_mixed_share(recorded.layers[0], recorded.measured_T) is None
