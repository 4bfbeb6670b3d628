"""Continuing a prompt."""

from __future__ import annotations

import math

import pytest
import torch

from clockhands.errors import ClockhandsWarning, UsageError
from clockhands.generation import generate
from clockhands.runs import Run


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
        ({"tokens": 0}, "tokens is 0, but must be at least 1"),
        ({"temperature": -1.0}, "temperature is -1.0, but must be at least 0"),
        ({"top_p": 1.5}, "top_p is 1.5, but must be from 1e-09 to 1"),
        (
            {"samples": 2, "temperature": 0.0},
            "with temperature 0 all would be the same; leave samples out, or give a temperature of at least 0.001",
        ),
        ({"samples": 2, "beam": 2}, "but a beam search gives one continuation; leave out samples or beam"),
        ({"temperature": 1e-320}, "temperature is 1e-320; the least is 0.001, or 0 for the likeliest token"),
        ({"temperature": math.nan}, "temperature is nan, but must be a finite number"),
        ({"temperature": math.inf}, "temperature is inf, but must be a finite number"),
        ({"top_p": 1e-10}, "top_p is 1e-10, but must be from 1e-09 to 1"),
        ({"top_p": math.nan}, "top_p is nan, but must be a finite number"),
        ({"top_k": -3}, "top_k is -3, but must be at least 0"),
        ({"max_prompt": 0}, "max_prompt is 0, but must be at least 1"),
        ({"beam": 2, "top_k": 3}, "with beam 2 nothing is sampled: leave out top_k"),
        ({"beam": 2, "temperature": 0.5, "seed": 1}, "nothing is sampled: leave out temperature, seed"),
        ({"temperature": 0, "top_p": 0.5}, "with temperature 0 nothing is sampled: leave out top_p"),
        (
            {"tokens": 10**13},
            "1 text of 10,000,000,000,001 tokens at a time needs .* of memory, and .* are free; lower",
        ),
        ({"samples": 10**12}, "1,000,000,000,000 texts of .* need .* of memory"),
    ],
)
def test_impossible_values_are_named(writer: Run, given: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate(writer, "x", **given)


def test_of_a_long_prompt_the_end_is_read_and_that_is_said(writer: Run) -> None:
    with pytest.warns(ClockhandsWarning, match="the prompt has 24 tokens, and the last 18 are read; raise max_prompt"):
        long = generate(writer, "xxxxxxthe cat sat on the", tokens=6, temperature=0, max_prompt=18)
    assert long == ["xxxxxxthe cat sat on the mat. "]
    assert long[0][6:] == generate(writer, "the cat sat on the", tokens=6, temperature=0)[0]


def test_a_seed_leaves_the_random_numbers_of_the_caller_alone(writer: Run) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = generate(writer, "the", tokens=5, seed=7)
    assert torch.equal(torch.rand(2), expected)
    assert generate(writer, "the", tokens=5, seed=7) == first


def test_sampling_options_that_are_off_are_taken_where_nothing_is_sampled(writer: Run) -> None:
    plain = generate(writer, "the", tokens=5, temperature=0)
    assert generate(writer, "the", tokens=5, temperature=0, top_k=0, top_p=1.0) == plain
