"""Continuing a prompt."""

from __future__ import annotations

import pytest

from clockhands.errors import UsageError
from clockhands.generation import generate
from clockhands.training import Run


def test_it_goes_on_as_it_learnt(writer: Run) -> None:
    assert generate(writer, "the cat sat on the", tokens=6, temperature=0)[0] == "the cat sat on the mat. "


def test_a_seed_draws_the_same_again(writer: Run) -> None:
    one, other = (generate(writer, "the ", tokens=20, temperature=2.0, seed=seed) for seed in (3, 4))
    assert one == generate(writer, "the ", tokens=20, temperature=2.0, seed=3)
    assert one != other


def test_samples_differ_and_an_empty_prompt_starts_a_text(writer: Run) -> None:
    assert len(set(generate(writer, tokens=20, temperature=3.0, samples=3, seed=1))) > 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": 0}, "tokens is 0; it must be 1 or more"),
        ({"temperature": -1.0}, "temperature is -1.0; it must be 0 or more"),
        ({"top_p": 1.5}, "top_p is 1.5; it is a share, at most 1"),
        ({"samples": 2, "temperature": 0.0}, "samples is 2, but without sampling all would be the same"),
    ],
)
def test_impossible_values_are_named(writer: Run, given: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate(writer, "x", **given)
