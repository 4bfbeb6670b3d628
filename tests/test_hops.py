"""How far one has to follow an operation until one reads its arithmetic."""

from __future__ import annotations

import pytest

from tests.hops import TO_THE_SENTENCE, list_hops, list_way, make_operations

MOST = {"RoPE.rotate": (8, 2), "attend(RoPE)": (15, 6), "split_logits": (25, 5)}
"""Functions and files that an operation may go through; torchtune's rotation is three functions in one file."""


@pytest.mark.parametrize("name", MOST)
def test_an_operation_is_followed_in_few_steps(name: str) -> None:
    hops = list_hops(make_operations()[name])
    functions, files = MOST[name]
    assert 3 <= len(hops) <= functions, hops
    assert len({file for file, _ in hops}) <= files, hops


def test_the_most_quoted_figure_is_few_hops_from_its_weights() -> None:
    way = list_way(make_operations()["inspect"], TO_THE_SENTENCE)
    assert way[0] == ("inspection/run.py", "inspect") and len(way) <= 15, way
