"""The flag that signals set: after the first one a run ends by itself, the second Ctrl-C ends it at once."""

from __future__ import annotations

import io
import itertools
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from transformers import TrainerControl, TrainerState, TrainingArguments

from clockhands.runs import checkpoints
from clockhands.runs.recipe.sections import Training
from clockhands.training import callbacks, trainer
from clockhands.training.callbacks import Flow, ProgressBar, Stop
from tests.runs.test_checkpoints import make

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


@pytest.mark.parametrize(("average", "kept"), [("none", [30, 40]), ("last", [30, 40]), ("best", [10, 20, 40])])
def test_what_is_needed_is_kept(tmp_path: Path, average: str, kept: list[int]) -> None:
    for step in (10, 20, 30, 40):
        make(tmp_path, step)
    loss = {10: 1.0, 20: 0.5, 30: 2.0, 40: 3.0}
    training = Training(max_steps=1, save_steps=10, eval_steps=10, keep=2, average=average)  # type: ignore[arg-type]
    trainer.discard(tmp_path, training, loss, 100)
    assert [checkpoints.get_step(path) for path in checkpoints.list_checkpoints(tmp_path)] == kept
    best = trainer.rank_best(checkpoints.list_checkpoints(tmp_path), loss, 1)
    assert checkpoints.get_step(best[0]) == min(kept, key=lambda step: loss[step])


@pytest.mark.parametrize(("average", "kept"), [("none", [20, 30, 34]), ("last", [20, 30, 34]), ("best", [10, 20, 34])])
def test_what_a_stop_saved_displaces_no_planned_one_and_is_not_averaged(
    tmp_path: Path, average: str, kept: list[int]
) -> None:
    for step in (10, 20, 25, 30, 34):
        make(tmp_path, step)
    loss = {10: 1.0, 20: 0.5, 30: 2.0}
    training = Training(max_steps=40, save_steps=10, eval_steps=10, keep=2, average=average)  # type: ignore[arg-type]
    trainer.discard(tmp_path, training, loss, 40)
    assert [checkpoints.get_step(path) for path in checkpoints.list_checkpoints(tmp_path)] == kept
    if average != "none":
        assert 34 not in [checkpoints.get_step(path) for path in trainer.select_averaged(tmp_path, training, loss, 40)]
        # The end is averaged wherever it lies; it has no validation loss here.
        last = trainer.select_averaged(tmp_path, training, loss, 34)[-1]
        assert checkpoints.get_step(last) == {"best": 10, "last": 34}[average]


def metrics(*losses: float) -> list[dict[str, float]]:
    """Lines as a run writes them: every second one has no validation loss."""
    return [
        line
        for step, loss in enumerate(losses, 1)
        for line in ({"step": 10 * step - 5, "loss": 1.0}, {"step": 10 * step, "validation_loss": loss})
    ]


@pytest.mark.parametrize("losses", [(), (2.0,), (3.0, 2.0, 1.0), (3.0, 2.0, 2.03)])
def test_a_validation_loss_that_falls_or_rises_within_its_noise_is_not_told(losses: tuple[float, ...]) -> None:
    assert trainer.describe_rise(metrics(*losses), Training(max_steps=30)) is None


def test_a_rise_is_told_with_a_setting_that_a_recipe_accepts_and_that_exports_the_lowest() -> None:
    said = trainer.describe_rise(metrics(3.0, 2.0, 2.5, 2.1), Training(max_steps=40, eval_steps=10, export="last"))
    assert said is not None and "lowest after 20 steps (2.0000) and has risen since" in said
    assert said.endswith("--set training.export=lowest")
    training = Training(max_steps=40, eval_steps=10, export="lowest")
    assert training.find_faults() == []
    told = trainer.describe_rise(metrics(3.0, 2.0, 2.5), training)
    assert told is not None and told.endswith("has risen since, to 2.5000 after 30")
    best = Training(max_steps=40, average="best", keep=1, eval_steps=10, save_steps=10)
    assert trainer.describe_rise(metrics(3.0, 2.0, 2.5), best) is None, "the best weights are exported already"


def test_the_checkpoint_that_is_exported_stays(tmp_path: Path) -> None:
    for step in (10, 20, 25, 30, 40):
        make(tmp_path, step)
    loss = {10: 1.0, 20: 0.5, 30: 0.5, 40: 3.0}
    training = Training(max_steps=40, eval_steps=10, keep=1, export="lowest")
    trainer.discard(tmp_path, training, loss, 40)
    saved = checkpoints.list_checkpoints(tmp_path)
    assert [checkpoints.get_step(path) for path in saved] == [20, 40], "of equal losses the first"
    assert trainer.select_lowest(saved, training, loss) == saved[0]
    assert trainer.select_lowest(saved, replace(training, export="last"), loss) is None
    assert trainer.select_lowest(saved, training, {}) is None, "a checkpoint without a validation loss is not judged"


def test_a_loss_that_is_no_number_is_never_the_lowest() -> None:
    history = [{"step": step, "eval_loss": loss} for step, loss in ((1, float("nan")), (2, 3.0), (3, float("nan")))]
    losses = trainer.read_losses({"log_history": history})
    first, second, third = ({step: losses[step] for step in range(1, last + 1)} for last in (1, 2, 3))
    assert [trainer.is_lowest(known) for known in (first, second, third)] == [True, True, False]
    assert trainer.rank_best([Path(f"checkpoint-{step}") for step in losses], losses, 1) == [Path("checkpoint-2")]


@pytest.mark.parametrize(
    ("values", "lowest"), [([1.0], True), ([2.0, 1.0], True), ([1.0, 1.0], False), ([1, 2], False)]
)
def test_a_loss_is_the_lowest_only_below_all_others(values: list[float], lowest: bool) -> None:
    assert trainer.is_lowest(dict(enumerate(values))) is lowest
