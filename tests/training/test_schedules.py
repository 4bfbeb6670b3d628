"""Learning rates against the formulas of their sources, written out, and transformers' own schedules."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_inverse_sqrt_schedule

from clockhands.runs.recipe.sections import Training
from clockhands.training.schedules import constant, cosine, inverse_sqrt, make_rate, paper


def test_the_papers_schedule_has_its_published_peak() -> None:
    of = paper(1.0, 512, 4000)
    assert of(4000) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert of(4000) == max(of(step) for step in range(1, 20_000))
    assert of(1) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert of(100_000) == pytest.approx(512**-0.5 / math.sqrt(100_000))


def test_inverse_sqrt_is_that_of_fairseq() -> None:
    # fairseq's inverse_sqrt with lr 0.005, warmup-updates 2000, warmup-init-lr 1e-7.
    of = inverse_sqrt(0.005, 2000, 1e-7)
    assert of(1000) == pytest.approx(1e-7 + 1000 * (0.005 - 1e-7) / 2000)
    assert of(2000) == pytest.approx(0.005)
    assert of(8000) == pytest.approx(0.005 * 2000**0.5 * 8000**-0.5)


@pytest.mark.parametrize("name", ["inverse-sqrt", "cosine"])
def test_the_shapes_are_those_of_transformers(name: str) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    if name == "cosine":
        theirs = get_cosine_schedule_with_warmup(optimizer, 10, 100)
        ours = cosine(0.1, 10, 100)
    else:
        theirs = get_inverse_sqrt_schedule(optimizer, 10)
        ours = inverse_sqrt(0.1, 10)
    for step in range(1, 100):
        optimizer.step()
        theirs.step()
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0])


def test_cosine_ends_at_the_final_rate_and_stays_there() -> None:
    of = cosine(1e-3, 100, 2000, final=1e-4)
    assert (of(100), of(1050)) == (pytest.approx(1e-3), pytest.approx(5.5e-4))
    assert of(2000) == of(3000) == pytest.approx(1e-4)


def test_constant_rises_once() -> None:
    assert [constant(1.0, 4)(step) for step in (1, 2, 4, 99)] == [0.25, 0.5, 1.0, 1.0]
    assert constant(0.3)(1) == 0.3


def test_the_recipe_chooses() -> None:
    chosen = Training(max_steps=10, schedule="paper", warmup_steps=5, learning_rate=2.0)
    assert make_rate(chosen, 64, 10)(5) == pytest.approx(2 * 64**-0.5 * 5**-0.5)
    assert (
        make_rate(Training(max_steps=10, schedule="cosine", learning_rate=1.0, final_rate=0.5, warmup_steps=0), 64, 10)(
            10
        )
        == 0.5
    )
    assert make_rate(Training(max_steps=10, schedule="constant", learning_rate=5e-4, warmup_steps=0), 64, 10)(3) == 5e-4
    assert make_rate(Training(max_steps=10, learning_rate=1.0, warmup_steps=0), 64, 10)(4) == 0.5
