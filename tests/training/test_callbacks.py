"""The flag that signals set: after the first one a run ends by itself, the second Ctrl-C ends it at once."""

from __future__ import annotations

import io
import itertools
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from transformers import TrainerControl, TrainerState, TrainingArguments

from clockhands.training import callbacks
from clockhands.training.callbacks import Flow, ProgressBar, Stop

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP and no os.kill of this kind")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_the_flag_and_the_second_stops_at_once(number: signal.Signals) -> None:
    stop, before = Stop(), signal.getsignal(number)
    with stop.listen():
        assert not stop.is_set
        os.kill(os.getpid(), number)
        assert stop.is_set
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_another_thread_leaves_the_signals_as_they_are() -> None:
    before, during = signal.getsignal(signal.SIGTERM), []

    def listen() -> None:
        with Stop().listen():
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert during == [before]


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


@pytest.mark.parametrize(("stop", "due", "last", "saves"), list(itertools.product([False, True], repeat=4)))
def test_a_step_saves_for_each_reason_alone(stop: bool, due: bool, last: bool, saves: bool) -> None:
    """A stop, the clock, or the last step of a run that saves; by itself none of the other two."""
    training: Any = SimpleNamespace(save_steps=None, is_saved_regularly=saves, save_minutes=1.0)
    flow, control = Flow(training, Stop(), validates=False), TrainerControl()
    cast(Any, flow)._agree = lambda args, state: (stop, due)
    flow.on_step_end(cast(Any, None), TrainerState(global_step=9 if last else 8, max_steps=9), control)
    assert control.should_save == (stop or due or (last and saves))
    assert (control.should_training_stop, control.should_log, control.should_evaluate) == (stop, last, False)


class Clock:
    """Time that passes only when it is set."""

    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: clock.now)
    return clock


def run(console: Console, clock: Clock, logs: dict[str, float], *, process: int = 0, first: int = 0) -> None:
    """Begin at a step, and log ten steps, 20 seconds and 500 target tokens later, of 40 steps in all."""
    bar = ProgressBar(console)
    bar.trainer = SimpleNamespace(tokens=500)  # type: ignore[assignment]
    state = TrainerState(global_step=first, max_steps=first + 40, is_world_process_zero=process == 0)
    rest: tuple[Any, ...] = (state, TrainerControl())
    bar.on_train_begin(TrainingArguments(), *rest)
    clock.now += 20.0
    state.global_step = first + 10
    bar.on_step_end(TrainingArguments(), *rest)
    bar.on_log(TrainingArguments(), *rest, logs=logs)
    bar.close()


def show(clock: Clock, logs: dict[str, float], **options: Any) -> str:
    out = io.StringIO()
    run(Console(file=out, width=200), clock, logs, **options)
    return out.getvalue()


def test_a_line_tells_step_loss_speed_and_what_is_left(clock: Clock) -> None:
    """30 steps are left at 2 seconds each."""
    assert show(clock, {"loss": 2.5}) == "step 10 of 40  loss 2.5000  25 tokens/s  1 min left\n"


def test_a_validation_loss_has_a_line_of_its_own(clock: Clock) -> None:
    assert show(clock, {"eval_loss": 1.25}) == "step 10 of 40  validation loss 1.2500  1 min left\n"


def test_time_left_counts_from_the_step_that_was_resumed(clock: Clock) -> None:
    assert show(clock, {"loss": 2.5}, first=960) == "step 970 of 1,000  loss 2.5000  25 tokens/s  1 min left\n"


@pytest.mark.parametrize(("logs", "process"), [({"train_runtime": 3.0}, 0), ({"loss": 2.5}, 1)])
def test_other_numbers_and_other_processes_print_nothing(clock: Clock, logs: dict[str, float], process: int) -> None:
    assert show(clock, logs, process=process) == ""


def test_a_terminal_shows_a_bar_and_loses_it(clock: Clock) -> None:
    out = io.StringIO()
    run(Console(file=out, force_terminal=True, width=100), clock, {"loss": 2.5})
    assert "10/40" in out.getvalue() and "loss 2.5000  25 tokens/s" in out.getvalue()
    assert "step 10 of 40" not in out.getvalue()
