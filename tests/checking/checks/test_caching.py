"""What two ways of generating are compared by, on texts and logits that are written here."""

from __future__ import annotations

import pytest
import torch

from clockhands.checking.checks.caching import _compare_steps
from clockhands.checking.checks.check import largest


def rollout(tokens: list[int], size: float = 0.0, step: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A text that ends in six new tokens, and their logits: normal numbers, of which one step is off by a size."""
    logits = torch.randn(1, 6, 50, generator=torch.Generator().manual_seed(0))
    logits[0, step, 7] += size
    return torch.tensor([tokens]), logits


def test_the_step_of_the_largest_difference_is_told_as_a_person_counts() -> None:
    """The prompts are of two lengths: it is the new tokens that are compared, from the end."""
    found = largest(*_compare_steps(rollout([9, 9, 1, 2, 3, 4, 5, 6], 3.0, step=2), rollout([9, 1, 2, 3, 4, 5, 6])))
    assert found.note == "step 3 of 6"
    assert found.size == pytest.approx(3.0, rel=0.2), "in standard deviations of the logits, which are 1"


def test_steps_after_the_chosen_tokens_part_say_nothing() -> None:
    """From the second new token on the texts differ, so that later logits must."""
    found = largest(*_compare_steps(rollout([9, 1, 0, 3, 4, 5, 6], 100.0, step=4), rollout([9, 1, 2, 3, 4, 5, 6])))
    assert found.size == 0


def test_only_the_first_row_is_compared() -> None:
    one, two = rollout([1, 2, 3, 4, 5, 6]), rollout([8, 8, 8, 8, 8, 8], 50.0)
    together = torch.cat([one[0], two[0]]), torch.cat([one[1], two[1]])
    found = largest(*_compare_steps(together, rollout([1, 2, 3, 4, 5, 6], 2.0, step=5)))
    assert found.note == "step 6 of 6" and found.size > 1
