"""Positions as data: counting, padding, packing, continuing, and the transforms that a configuration names."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, pearsonr

from clockhands import positions
from clockhands.errors import PositionError, UsageError
from clockhands.positions import (
    TRANSFORMS,
    Cape,
    Jittered,
    RandomFloat,
    Randomised,
    Scaled,
    Shifted,
    Skipping,
    make_transform,
)

masks = st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4).map(torch.tensor)


@given(masks)
def test_real_tokens_count_from_zero_wherever_the_padding_is(mask: torch.Tensor) -> None:
    for row, real in zip(positions.count_from_mask(mask), mask, strict=True):
        assert row[real].tolist() == list(range(int(real.sum())))
        assert not row[~real].any()


@given(masks, st.integers(1, 5))
def test_continued_is_the_tail_of_the_whole(mask: torch.Tensor, new: int) -> None:
    assert torch.equal(positions.continue_from_mask(mask, new), positions.count_from_mask(mask)[:, -new:])


@pytest.mark.parametrize("new", [0, 4])
def test_continuing_more_than_the_mask_is_refused(new: int) -> None:
    with pytest.raises(PositionError, match=f"{new} new tokens do not fit a mask of 3"):
        positions.continue_from_mask(torch.ones(1, 3, dtype=torch.long), new)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_trap_10_packed_documents_count_for_themselves(lengths: list[int]) -> None:
    documents = torch.cat([torch.full((n,), d) for d, n in enumerate(lengths)])[None]
    assert positions.count_packed(documents)[0].tolist() == [p for n in lengths for p in range(n)]
    sees = positions.make_document_mask(documents)[0]
    assert sees.sum() == sum(n * n for n in lengths)


def test_sequential_starts_where_it_is_told() -> None:
    assert positions.count_up(2, 3, start=7).tolist() == [[7, 8, 9]] * 2


def test_grid_runs_the_last_axis_fastest() -> None:
    assert positions.make_grid(1, 2, 3)[0].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    with pytest.raises(PositionError, match=r"lengths of at least 1; got \(2, 0\)"):
        positions.make_grid(1, 2, 0)


def test_patch_centres_are_halfway_between_the_edges_of_their_patches() -> None:
    assert positions.make_patch_centres(1, 2, 1)[0].tolist() == [[-0.5, 0.0], [0.5, 0.0]]
    with pytest.raises(PositionError, match="lengths of at least 1"):
        positions.make_patch_centres(1, 0, 4)


def test_text_stands_on_the_diagonal_of_all_axes() -> None:
    assert positions.repeat_on_axes(torch.tensor([[0, 4]]), 3).tolist() == [[[0, 0, 0], [4, 4, 4]]]


def test_trap_13_what_follows_an_image_continues_after_its_longest_side() -> None:
    """Qwen2-VL: 2 tokens of text, an image of 1 x 2 x 3, 2 tokens of text; then the next turn of the dialogue."""
    pos = positions.make_segments(2, (1, 2, 3), 2)[0].tolist()
    assert pos[:2] == [[0, 0, 0], [1, 1, 1]]
    assert pos[2:8] == [[2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3], [2, 3, 4]]
    assert pos[8:] == [[5, 5, 5], [6, 6, 6]]
    assert positions.make_segments(1, start=7).tolist() == [[[7, 7, 7]]]
    with pytest.raises(PositionError, match="no token in these segments"):
        positions.make_segments(0)


def test_real_times_must_be_finite() -> None:
    assert positions.read_times([[0.5, 1e9 + 0.25]]).tolist() == [[0.5, 1e9 + 0.25]]
    with pytest.raises(PositionError, match="NaN or infinite"):
        positions.read_times([[0.0, math.nan]])


def test_normalised_coordinates_end_at_the_scale() -> None:
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    got = positions.normalise(positions.count_from_mask(mask), mask, scale=2.0)
    assert got[0].tolist() == [0.5, 1.0, 1.5, 2.0]
    assert got[1, :2].tolist() == [1.0, 2.0]


def test_last_token_ignores_padding() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert positions.find_last_position(torch.tensor([[0, 1, 9], [3, 4, 5]]), mask).tolist() == [[1], [5]]


def test_shape_draws_one_shift_a_row_and_keeps_distances() -> None:
    pos = positions.count_up(64, 5)
    moved = Shifted(maximum=10)(pos, training=True, generator=torch.Generator().manual_seed(1))
    offsets = (moved - pos)[:, 0]
    assert torch.equal(moved - pos, offsets[:, None].expand(-1, 5))
    assert set(offsets.tolist()) == set(range(11))
    assert Shifted(maximum=10)(pos[:1, :2]).tolist() == [[10, 11]], "outside training at the reference offset"
    assert Shifted(maximum=10, test=0)(pos[:1, :2]).tolist() == [[0, 1]]


@given(st.integers(1, 20), st.integers(0, 40), st.integers(0, 10))
def test_randomised_positions_are_distinct_ordered_and_in_range(length: int, extra: int, seed: int) -> None:
    for training in (True, False):
        transform = Randomised(maximum=length + extra, seed=seed)
        got = transform(positions.count_up(2, length), training=training)
        assert torch.equal(got[0], got[1])
        assert bool((got[0].diff() > 0).all())
        assert got.min() >= 0
        assert got.max() < length + extra


def test_randomised_draws_without_bias() -> None:
    """Each of the positions is in the subset equally often: length/maximum of all draws."""
    generator, counts = torch.Generator().manual_seed(0), torch.zeros(20)
    for _ in range(3000):
        counts[Randomised(maximum=20)(positions.count_up(1, 5), training=True, generator=generator)[0]] += 1
    assert torch.allclose(counts / 3000, torch.full((20,), 0.25), atol=0.04)


def test_randomised_outside_training_is_the_subset_of_its_seed() -> None:
    pos, chosen = positions.count_up(1, 6), []
    for seed in range(4):
        got = Randomised(maximum=300, length=6, seed=seed)(pos)[0].tolist()
        assert got == sorted(np.random.RandomState(seed).permutation(300)[:6].tolist())
        chosen.append(tuple(got))
    assert len(set(chosen)) == 4


def test_randomised_with_a_fixed_length_is_the_same_token_by_token() -> None:
    transform = Randomised(maximum=100, length=30, seed=4)
    whole = transform(positions.count_up(1, 12))
    steps = [transform(positions.count_up(1, 1, start=p)) for p in range(12)]
    assert torch.equal(whole, torch.cat(steps, dim=1))
    assert not transform.depends_on_length
    assert Randomised(maximum=100).depends_on_length


@pytest.mark.parametrize(("name", "transform"), [("maximum", Randomised(4)), ("length", Randomised(40, length=4))])
def test_randomised_refuses_what_does_not_fit(name: str, transform: Randomised) -> None:
    with pytest.raises(PositionError, match=rf"5 positions do not fit .* raise randomised.{name}"):
        transform(positions.count_up(1, 5))


def test_cape_keeps_order_and_stays_within_its_bounds() -> None:
    pos = positions.count_up(200, 8)
    got = Cape(3.0, 0.5, 1.1)(pos, training=True, generator=torch.Generator().manual_seed(3))
    assert bool((got.diff(dim=-1) >= 0).all())
    assert got.abs().max() <= (3.5 + 3.0 + 0.5) * 1.1
    assert got.mean().abs() < 0.5


def test_cape_moves_rows_tokens_and_scales_by_draws_of_their_own() -> None:
    """One shift and one scale a row, one shift a token: each alone, and uniform within its bounds."""
    pos, generator = positions.count_up(400, 8), torch.Generator().manual_seed(4)

    def drawn(*bounds: float) -> torch.Tensor:
        return Cape(*bounds, centre=False)(pos, training=True, generator=generator)

    rows, tokens = drawn(3.0, 0.0, 1.0) - pos, drawn(0.0, 0.5, 1.0) - pos
    scales = torch.log(drawn(0.0, 0.0, 1.1)[:, 1:] / pos[:, 1:])
    for constant in (rows, scales):
        torch.testing.assert_close(constant, constant[:, :1].expand_as(constant))
    for free, bound in ((rows[:, 0], 3.0), (tokens.flatten(), 0.5), (scales[:, 0], math.log(1.1))):
        assert kstest(free / bound, "uniform", (-1, 2)).pvalue > 1e-3
    # Neighbours of a row and rows of a place are drawn alone.
    for left, right in ((tokens[:, 0], tokens[:, 1]), (tokens[0::2, 3], tokens[1::2, 3])):
        assert abs(pearsonr(left, right).statistic) < 0.2


def test_cape_outside_training_centres_over_real_tokens_only() -> None:
    mask = torch.tensor([[0, 1, 1, 1]])
    assert Cape()(positions.count_from_mask(mask), mask)[0, 1:].tolist() == [-1.0, 0.0, 1.0]
    assert Cape(centre=False)(positions.count_up(1, 3)).tolist() == [[0.0, 1.0, 2.0]]


def test_cape_moves_each_axis_by_draws_of_its_own_and_scales_all_alike() -> None:
    """As the authors' CAPE2d: a shift for each axis, a jitter for each coordinate, one factor for the whole grid."""
    grid = positions.make_grid(2, 3, 4)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[1, 8:] = False
    still = Cape()(grid, mask)
    torch.testing.assert_close(still[0].mean(0), torch.zeros(2))
    torch.testing.assert_close(still[1, :8].mean(0), torch.zeros(2))
    shifted = Cape(5.0, 0.0, 1.0)(grid, mask, training=True, generator=torch.Generator().manual_seed(1)) - still
    assert (shifted == shifted[:, :1]).all(), "every token of a row moves alike"
    assert len(set(shifted[:, 0].flatten().tolist())) == 4, "each axis of each row by itself"
    scaled = Cape(0.0, 0.0, 2.0)(grid, mask, training=True, generator=torch.Generator().manual_seed(1)) / still
    assert all(len(set(row[row.isfinite()].mul(1e4).round().tolist())) == 1 for row in scaled)
    assert scaled[0, 0, 0] != scaled[1, 0, 0]


def test_random_floats_are_sorted_uniform_draws_that_fill_the_range() -> None:
    """Sorted uniform draws: the n-th of N has the mean (n + 1)/(N + 1)·maximum, as order statistics have."""
    generator, pos = torch.Generator().manual_seed(1), positions.count_up(1, 4)
    draws = torch.cat([RandomFloat(maximum=10.0)(pos, training=True, generator=generator) for _ in range(4000)])
    assert (draws.diff(dim=1) > 0).all() and draws.min() >= 0 and draws.max() < 10
    torch.testing.assert_close(draws.mean(0), torch.tensor([2.0, 4.0, 6.0, 8.0]).double(), atol=0.1, rtol=0)
    fixed = RandomFloat(maximum=10.0, length=6, seed=3)
    assert torch.equal(fixed(pos), fixed(positions.count_up(1, 6))[:, :4]), "a token at a time is the same"
    assert not torch.equal(fixed(pos), RandomFloat(maximum=10.0, length=6, seed=4)(pos))
    with pytest.raises(PositionError, match=r"7 positions do not fit 6 draws out of 10.0; raise random-float.length"):
        fixed(positions.count_up(1, 7))


def test_skipping_cuts_a_row_into_chunks_that_stand_further_on() -> None:
    """PoSE: chunks keep their order and their inner distances; every position below the maximum is met."""
    mask = torch.tensor([[True] * 8, [False, False, *[True] * 6]])
    pos, generator = positions.count_from_mask(mask), torch.Generator().manual_seed(1)
    rows = [Skipping(maximum=20, chunks=3)(pos, mask, training=True, generator=generator) for _ in range(600)]
    for row in rows[:100]:
        steps = [row[0].diff(), row[1, 2:].diff()]
        assert all((step >= 1).all() and (step > 1).sum() <= 2 for step in steps)
        assert row.min() >= 0 and row.max() < 20
    met = torch.stack(rows)
    assert set(met[:, 0].flatten().tolist()) == set(range(20))
    assert (met[:, 0] != met[:, 1]).any(), "each row by itself"
    assert torch.equal(Skipping(maximum=20)(pos, mask), pos), "outside training nothing changes"
    assert torch.equal(Skipping(maximum=8)(pos[:1], training=True, generator=generator), pos[:1]), "no room, no skip"
    with pytest.raises(PositionError, match=r"a text of 8 tokens does not fit skipping.maximum, which is 7"):
        Skipping(maximum=7)(pos, training=True)
    for training in (True, False):
        with pytest.raises(PositionError, match=r"skipping takes positions of one coordinate.*shape \[1, 6, 2\]"):
            Skipping()(positions.make_grid(1, 2, 3), training=training)


@pytest.mark.parametrize(
    "options", [{"shift": 0.3}, {"jitter": 1.5, "rescale": None}, {"shift": 0.2, "jitter": 1.2, "rescale": 3.0}]
)
def test_jittered_coordinates_are_those_of_dinov3(options: dict[str, Any]) -> None:
    from transformers.models.dinov3_vit import modeling_dinov3_vit as dinov3

    centres = positions.make_patch_centres(2, 3, 4)
    peer = dinov3.get_patches_center_coordinates(3, 4, torch.float32, torch.device("cpu"))
    torch.testing.assert_close(centres[0], peer)
    torch.manual_seed(5)
    wanted = dinov3.augment_patches_center_coordinates(peer, **{"rescale": 2.0, **options})
    got = Jittered(**options)(centres, training=True, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(got, wanted.expand(2, -1, -1))
    assert torch.equal(Jittered(**options)(centres), centres)


def test_scaled_divides() -> None:
    assert Scaled(factor=4.0)(positions.count_up(1, 3)).tolist() == [[0.0, 0.25, 0.5]]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_named_frozen_and_fixed_outside_training(name: str) -> None:
    transform = make_transform(name)
    pos = positions.count_up(2, 6)
    assert torch.equal(transform(pos), transform(pos))
    if not transform.depends_on_length:
        assert torch.equal(transform(pos)[:, 3:], transform(pos[:, 3:]))
    assert transform(pos).is_floating_point() == transform.real_valued
    with pytest.raises(dataclasses.FrozenInstanceError):
        transform.seed = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_same_generator_draws_the_same(name: str) -> None:
    pos = positions.count_up(3, 6)
    twice = [make_transform(name)(pos, training=True, generator=torch.Generator().manual_seed(9)) for _ in range(2)]
    assert torch.equal(*twice)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shited", {}, "unknown position transform 'shited'; did you mean 'shifted'"),
        ("shifted", {"maximun": 3}, "unknown option of shifted 'maximun'; did you mean 'maximum'"),
        ("shifted", {"maximum": -1}, "maximum is -1"),
        ("randomised", {"length": 10, "maximum": 5}, "length is 10, but must be at most maximum, which is 5"),
        ("randomised", {"length": 0}, "length is 0, but must be at least 1"),
        ("randomised", {"maximum": 0}, "maximum is 0, but must be at least 1"),
        ("random-float", {"length": 0}, "length is 0, but must be at least 1"),
        ("random-float", {"maximum": 0.0, "length": 0}, r"maximum is 0.0, but must be above 0"),
        ("skipping", {"maximum": 0, "chunks": 0}, r"(?s)maximum is 0.*chunks is 0"),
        ("jittered", {"shift": -1.0, "jitter": 0.5, "rescale": 0.1}, r"(?s)shift is -1.0.*jitter is 0.5.*rescale is"),
        ("cape", {"max_scale": 0.5, "max_local_shift": -1.0}, r"(?s)max_scale is 0.5.*local_shift is -1.0, but must"),
        ("scaled", {"factor": 0.0}, "factor is 0.0"),
    ],
)
def test_faults_are_named(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_transform(name, options)


@pytest.mark.parametrize("name", ["scaled.factor", "cape.max_scale", "cape.max_local_shift", "jittered.shift",
                                  "jittered.jitter", "random-float.maximum"])  # fmt: skip
def test_nan_is_refused_by_every_transform_that_is_made_without_a_configuration(name: str) -> None:
    transform, _, option = name.partition(".")
    with pytest.raises(UsageError, match=r"nan.*, but must be"):
        positions.TRANSFORMS[transform](**{option: math.nan})


@pytest.mark.parametrize("factor", [0.0, -2.0, math.nan])
def test_positions_are_divided_by_any_factor_above_zero_and_by_nothing_else(factor: float) -> None:
    for divisor in (0.5, 1.0, 4.0):
        assert positions.interpolate(positions.count_up(1, 3), divisor).tolist() == [[0.0, 1 / divisor, 2 / divisor]]
    with pytest.raises(PositionError, match=f"the factor, which is {factor}"):
        positions.interpolate(positions.count_up(1, 3), factor)


def test_sizes_of_numpy_and_of_tensors_are_numbers_too() -> None:
    for length in (np.int64(3), torch.tensor([1, 3]).max()):
        assert positions.count_up(2, length).tolist() == [[0, 1, 2]] * 2
