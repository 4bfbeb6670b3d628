"""Batches: every example once, bounds kept, one order for a seed, shards that make up the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from clockhands.data import LengthBatches, PairCollator, PairDataset, RandomBatches
from clockhands.data.datasets import IGNORED_LABEL, Ragged
from clockhands.errors import UsageError

lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120).map(np.array)
bounds = st.one_of(
    st.builds(lambda tokens: {"tokens": tokens}, st.integers(40, 300)),
    st.builds(lambda size, bucketed: {"batch_size": size, "bucketed": bucketed}, st.integers(1, 50), st.booleans()),
)


def made(lengths_NC: np.ndarray[Any, Any], bound: dict[str, Any], **options: Any) -> LengthBatches:
    return LengthBatches(lengths_NC.astype(np.int64), **bound, **options)


@given(lengths, bounds, st.booleans(), st.integers(0, 5))
def test_every_example_once_an_epoch_within_the_bound(
    lengths_NC: np.ndarray[Any, Any], bound: dict[str, Any], shuffle: bool, epoch: int
) -> None:
    batches = made(lengths_NC, bound, shuffle=shuffle)
    plan = batches.plan(epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths_NC)))
    assert len(plan) == len(batches)
    for batch in plan:
        assert len(batch) <= bound.get("batch_size", len(batch))
        assert len(batch) * lengths_NC[batch].max() <= bound.get("tokens", np.inf)


@given(lengths, bounds, st.integers(0, 3), st.integers(0, 3))
def test_the_order_is_a_function_of_seed_and_epoch(
    lengths_NC: np.ndarray[Any, Any], bound: dict[str, Any], seed: int, epoch: int
) -> None:
    one, other = made(lengths_NC, bound, seed=seed), made(lengths_NC, bound, seed=seed)
    list(one)
    one.set_epoch(3)
    list(one)
    one.set_epoch(epoch)
    other.set_epoch(epoch)
    assert list(one) == list(other)


@given(lengths, bounds, st.integers(0, 40))
def test_an_epoch_goes_on_where_it_stopped(lengths_NC: np.ndarray[Any, Any], bound: dict[str, Any], start: int) -> None:
    batches = made(lengths_NC, bound)
    batches.set_epoch(2)
    whole = list(batches)
    batches.set_epoch(2, start)
    assert list(batches) == whole[start:]
    batches.set_epoch(3)
    assert len(list(batches)) == len(whole)


@given(lengths, bounds, st.integers(1, 5))
def test_shards_make_up_the_batches_of_one_process(
    lengths_NC: np.ndarray[Any, Any], bound: dict[str, Any], shards: int
) -> None:
    whole = list(made(lengths_NC, bound))
    parts = [list(made(lengths_NC, bound, shard=shard, shards=shards)) for shard in range(shards)]
    assert {len(part) for part in parts} == {len(whole)}
    for step, batch in enumerate(whole):
        given = [index for part in parts for index in part[step]]
        assert sorted(index for index in given if index >= 0) == sorted(batch)
        assert {~index for index in given if index < 0} <= {batch[0]}
        sizes = [len(part[step]) for part in parts]
        assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_epochs_and_seeds_differ(seed: int) -> None:
    lengths_NC = np.random.default_rng(seed).integers(3, 20, (500, 2))
    for bound in ({"tokens": 200}, {"batch_size": 16}, {"batch_size": 16, "bucketed": False}):
        batches = made(lengths_NC, bound, seed=seed)
        first, second = batches.plan(0), batches.plan(1)
        assert [batch.tolist() for batch in first] != [batch.tolist() for batch in second]
        # Not the order of the batches alone: what stands together changes.
        together = [{frozenset(batch.tolist()) for batch in plan} for plan in (first, second)]
        assert len(together[0] & together[1]) < len(first) / 2
        assert made(lengths_NC, bound, seed=seed + 1).plan(0)[0].tolist() != first[0].tolist()


def test_random_batches_are_planned_too() -> None:
    batches = RandomBatches(1000, batch_size=12, batches=50, seed=3)
    plan = batches.plan(1)
    assert len(plan) == len(batches) == 50 and {len(batch) for batch in plan} == {12}
    drawn = np.concatenate(plan)
    assert 0 <= drawn.min() < 50 and 950 < drawn.max() < 1000
    batches.set_epoch(1, start=49)
    assert list(batches) == [plan[49].tolist()]
    halves = [list(RandomBatches(1000, batch_size=12, batches=50, seed=3, shard=i, shards=2)) for i in (0, 1)]
    batches.set_epoch(0)
    assert [sorted(one + other) for one, other in zip(*halves, strict=True)] == [sorted(batch) for batch in batches]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "bound batches by one of them"),
        ({"tokens": 10, "batch_size": 2}, "tokens=10, batch_size=2: bound batches by one of them"),
        ({"tokens": 10, "bucketed": False}, "with bucketed=False give batch_size"),
        ({"batch_size": 0}, "batch_size=0; a batch holds at least one"),
        ({"tokens": 8}, "example 2 has 9 tokens, more than a batch of tokens=8 holds; .*max_length"),
        ({"tokens": 20, "shard": 2, "shards": 2}, "shard=2 of shards=2"),
    ],
)
def test_bounds_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LengthBatches(np.array([[3, 4], [9, 2]]), **options)
    with pytest.raises(UsageError, match="batch_size=0"):
        RandomBatches(10, batch_size=0, batches=1)


@pytest.fixture(scope="module")
def data() -> PairDataset:
    rng = np.random.default_rng(0)
    rows = [rng.integers(5, 99, rng.integers(1, 30)).tolist() for _ in range(400)]
    return PairDataset(Ragged.of(rows), Ragged.of([row[::-1] for row in rows]))


def test_two_processes_see_the_tokens_of_one(data: PairDataset) -> None:
    """Batches of a single example too: the process left without one reads ballast that no loss counts."""
    for bound in ({"tokens": 60}, {"batch_size": 1}):
        loaders = [
            DataLoader(data, batch_sampler=made(data.lengths, bound, **shard), collate_fn=PairCollator(0))
            for shard in ({}, {"shard": 0, "shards": 2}, {"shard": 1, "shards": 2})
        ]
        for whole, *halves in zip(*loaders, strict=True):
            counted = [np.sort(batch["labels"][batch["labels"] != IGNORED_LABEL].numpy()) for batch in (whole, *halves)]
            np.testing.assert_array_equal(counted[0], np.sort(np.concatenate(counted[1:])))
            assert all((half["attention_mask"].sum(1) > 0).all() for half in halves)


def test_the_loader_of_the_trainer_keeps_the_order(data: PairDataset) -> None:
    """accelerate wraps the loader, and its set_epoch and skipping reach the plan."""
    from accelerate import Accelerator, skip_first_batches

    batches = made(data.lengths, {"tokens": 100}, seed=4)
    loader = Accelerator(cpu=True).prepare(DataLoader(data, batch_sampler=batches, collate_fn=PairCollator(0)))
    assert len(loader) == len(batches)
    loader.set_epoch(2)
    expected = [len(batch) for batch in batches.plan(2)]
    assert [len(batch["labels"]) for batch in loader] == expected
    loader.set_epoch(2)
    assert [len(batch["labels"]) for batch in skip_first_batches(loader, 3)] == expected[3:]


def padding_share(lengths_NC: np.ndarray[Any, Any], batches: list[np.ndarray[Any, Any]]) -> float:
    """The share of pads among all positions, every side of a batch padded to its longest."""
    padded = sum(len(batch) * lengths_NC[batch].max(axis=0).sum() for batch in batches)
    return 1 - float(sum(lengths_NC[batch].sum() for batch in batches) / padded)


def test_multi30k_pads_at_most_five_percent(encoded_multi30k: PairDataset) -> None:
    data = encoded_multi30k
    assert len(data) == 29_000
    for epoch in range(3):
        batches = made(data.lengths, {"tokens": 4096}, seed=1)
        assert padding_share(data.lengths, batches.plan(epoch)) <= 0.05
    random = made(data.lengths, {"batch_size": 128, "bucketed": False})
    assert padding_share(data.lengths, random.plan(0)) > 0.4


def test_no_examples_make_no_batches() -> None:
    for bound in ({"tokens": 10}, {"batch_size": 3}):
        with np.errstate(all="raise"):
            assert list(LengthBatches(np.zeros((0, 2), np.int64), **bound)) == []
