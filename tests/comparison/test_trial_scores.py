"""Which test items hang together."""

from __future__ import annotations

import pytest

from clockhands.comparison.trial_scores import find_groups, require_numbers
from clockhands.data import Pair, open_corpus
from clockhands.errors import DataError


def test_groups_are_numbered_in_the_order_of_the_items() -> None:
    pairs = [Pair("a", "", 7), Pair("b", ""), Pair("c", "", 0), Pair("d", "", 7), Pair("e", "")]
    assert find_groups(pairs) == (0, 1, 2, 0, 3)


def test_items_of_which_none_hang_together_have_no_groups() -> None:
    assert find_groups([Pair("a", ""), Pair("b", "", 1), Pair("c", "", 0)]) is None
    assert find_groups([]) is None


def test_the_twins_of_roles_are_one_group() -> None:
    pairs = open_corpus("roles", train=20, validation=2, test=40).pairs("test")
    groups = find_groups(pairs)
    assert groups is not None and len(set(groups)) == 20
    words = {}
    for group, pair in zip(groups, pairs, strict=True):
        words.setdefault(group, []).append(tuple(sorted(pair.source.split())))
    assert all(len(both) == 2 and both[0] == both[1] for both in words.values())


def test_items_without_a_score_are_named() -> None:
    require_numbers("0110")
    require_numbers((1.0, 2.0))
    with pytest.raises(DataError, match=r"there is no score for test items 1, 3 \(from 0\) of 4"):
        require_numbers((1.0, float("nan"), 2.0, float("inf")))
