"""What a capture refuses to record."""

from __future__ import annotations

import pytest
import torch

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.capture import capture

from .. import planted


def test_the_layer_that_gives_another_number_of_states_is_told() -> None:
    """It named the largest number of states, so that a layer with fewer was said to give 20 for 20 tokens."""
    subject, recorded = planted.subject_of(planted.uniform(), 3)
    ids_NT = recorded.ids_NT[:, :20]

    def pool(ids_BT: torch.Tensor) -> tuple[torch.Tensor, ...]:
        states = subject.forward(ids_BT)
        return (*states[:-1], states[-1][:, ::2])

    with pytest.raises(CheckpointError, match="gives 10 states for 20 tokens"):
        capture(subject.model, pool, ids_NT)
