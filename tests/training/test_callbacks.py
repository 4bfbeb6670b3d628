"""What is decided at the end of a step."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clockhands.training.callbacks import Flow
from clockhands.training.stop_signal import Stop


@pytest.mark.parametrize(
    ("fields", "due"),
    [({"save_minutes": 1.0}, True), ({"save_minutes": 1e6}, False), ({"save_minutes": 1.0, "save_steps": 7}, False),
     ({"save_minutes": 1.0, "saves": False}, False)],
)  # fmt: skip
def test_the_clock_saves_where_no_number_of_steps_does(fields: dict[str, Any], due: bool) -> None:
    """Two minutes after the last checkpoint, by a trainer whose saving takes no time."""
    training: Any = SimpleNamespace(**{"save_steps": None, "saves": True, **fields})
    flow = Flow(training, Stop(), validates=False)
    flow.trainer = cast(Any, SimpleNamespace(saving_seconds=0.0))
    flow.saved = time.monotonic() - 120
    assert flow._is_due() is due


def test_saving_takes_a_small_share_of_the_time() -> None:
    """A checkpoint that takes a minute is not due before fifty have passed (2 %)."""
    training: Any = SimpleNamespace(save_steps=None, saves=True, save_minutes=1.0)
    flow = Flow(training, Stop(), validates=False)
    flow.trainer = cast(Any, SimpleNamespace(saving_seconds=60.0))
    due = []
    for minutes in (49, 51):
        flow.saved = time.monotonic() - 60 * minutes
        due.append(flow._is_due())
    assert due == [False, True]
