"""What is decided at the end of a step."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from transformers import TrainerControl, TrainerState

from clockhands.training.callbacks import Flow
from clockhands.training.stop_signal import Stop


@pytest.mark.parametrize(
    ("fields", "due"),
    [({"save_minutes": 1.0}, True), ({"save_minutes": 1e6}, False), ({"save_minutes": 1.0, "save_steps": 7}, False),
     ({"save_minutes": 1.0, "is_saved_regularly": False}, False)],
)  # fmt: skip
def test_the_clock_saves_where_no_number_of_steps_does(fields: dict[str, Any], due: bool) -> None:
    """Two minutes after the last checkpoint, by a trainer whose saving takes no time."""
    training: Any = SimpleNamespace(**{"save_steps": None, "is_saved_regularly": True, **fields})
    flow = Flow(training, Stop(), validates=False)
    flow.trainer = cast(Any, SimpleNamespace(saving_seconds=0.0))
    flow.saved = time.monotonic() - 120
    assert flow._is_due() is due


def test_saving_takes_a_small_share_of_the_time() -> None:
    """A checkpoint that takes a minute is not due before fifty have passed (2 %)."""
    training: Any = SimpleNamespace(save_steps=None, is_saved_regularly=True, save_minutes=1.0)
    flow = Flow(training, Stop(), validates=False)
    flow.trainer = cast(Any, SimpleNamespace(saving_seconds=60.0))
    due = []
    for minutes in (49, 51):
        flow.saved = time.monotonic() - 60 * minutes
        due.append(flow._is_due())
    assert due == [False, True]


@pytest.mark.parametrize(("stop", "due", "last", "saves"), list(itertools.product([False, True], repeat=4)))
def test_a_step_saves_for_each_reason_alone(stop: bool, due: bool, last: bool, saves: bool) -> None:
    """A stop, the clock, or the last step of a run that saves; by itself none of the other two."""
    training: Any = SimpleNamespace(save_steps=None, is_saved_regularly=saves, save_minutes=1.0)
    flow, control = Flow(training, Stop(), validates=False), TrainerControl()
    cast(Any, flow)._agree = lambda args, state: (stop, due)
    flow.on_step_end(cast(Any, None), TrainerState(global_step=9 if last else 8, max_steps=9), control)
    assert control.should_save == (stop or due or (last and saves))
    assert (control.should_training_stop, control.should_log, control.should_evaluate) == (stop, last, False)
