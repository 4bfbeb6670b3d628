"""Without a terminal, progress is a line now and then: step, numbers, speed and the time left."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from transformers import TrainerControl, TrainerState, TrainingArguments

from clockhands.training import progress_bar
from clockhands.training.progress_bar import ProgressBar


class Clock:
    """Time that passes only when it is set."""

    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: clock.now)
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
