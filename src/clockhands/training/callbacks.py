"""What happens at the steps of a training: the record on disk, what follows (log, save, stop), and divergence."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clockhands.errors import ClockhandsError
from clockhands.progress import describe_time_left
from clockhands.runs import checkpoints
from clockhands.runs.folder import METRICS
from clockhands.runs.recipe.sections import Training
from clockhands.streams import make_console
from clockhands.training.trainer import ClockhandsTrainer, is_exhausted, is_lowest, read_losses


class Stop:
    """A flag that SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) set while a run trains.

    The run then ends after the current step, with a checkpoint. A second Ctrl-C stops at once, and loses what was
    trained since the last checkpoint. A second SIGHUP does not: when a terminal is closed, both the system and the
    shell send one.
    """

    def __init__(self) -> None:
        self.is_set = False
        self.terminals: list[int] = []

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Let signals set the flag inside this context; outside the main thread, do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
        signals = [signal.SIGINT, signal.SIGTERM]
        # Under ``nohup`` the end of the terminal is no reason to stop.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signals.append(signal.SIGHUP)
        before = {signal_number: signal.signal(signal_number, self._handle) for signal_number in signals}
        try:
            yield
        finally:
            for signal_number, handler in before.items():
                signal.signal(signal_number, handler)

    def _handle(self, signal_number: int, _: Any) -> None:
        """Set the flag; raise KeyboardInterrupt at the second SIGINT or SIGTERM."""
        # A write to a terminal that was closed would raise an error, and the run would end without a checkpoint.
        for descriptor in [descriptor for descriptor in self.terminals if not os.isatty(descriptor)]:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        if self.is_set and signal_number in (signal.SIGINT, signal.SIGTERM):
            raise KeyboardInterrupt
        self.is_set = True


NAMES = {"eval_loss": "validation_loss", "loss": "loss", "learning_rate": "learning_rate", "grad_norm": "grad_norm"}
MAX_SAVING_SHARE = 0.02
"""The largest share of the training time that checkpoints take when they are saved by the clock."""
REFRESH = 0.1
"""Seconds between two updates of the bar, so that it does not slow down short steps."""


class TrainingStopped(ClockhandsError):
    """The run was stopped by a signal after a whole step; it can be resumed."""

    exit_code = 130


class Diverged(ClockhandsError):
    """Training diverged: the loss is NaN or infinite, or exceeded ``explosion`` times its first value."""


class Watcher(TrainerCallback):
    """A callback that reads what its Trainer counts; ``trainer`` is set before training begins."""

    trainer: ClockhandsTrainer
    counted = (0.0, 0)
    """When the speed was last measured, and how many target tokens there were then."""

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        """Start the clock."""
        self.counted = (time.monotonic(), 0)

    def measure_speed(self) -> float:
        """Return the target tokens per second since the last call."""
        (then, before), (now, tokens) = self.counted, (time.monotonic(), int(self.trainer.tokens))
        self.counted = (now, tokens)
        return (tokens - before) / max(now - then, 1e-9)

    def close(self) -> None:
        """Remove what the callback shows, such as a bar; called when training ends in any way."""


class Record(Watcher):
    """Writes ``metrics.jsonl``: at every log line step, loss, learning rate, gradient norm, tokens per second."""

    def __init__(self, run: Path) -> None:
        self.path = run / METRICS

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **_: Any) -> None:
        """Write a line for each log of the loss or the validation loss."""
        known = {NAMES[name]: value for name, value in logs.items() if name in NAMES}
        if not {"loss", "validation_loss"} & set(known) or not state.is_world_process_zero:
            return
        line = {"step": state.global_step, "epoch": round(state.epoch or 0.0, 4), **known}
        if "loss" in known:
            line["tokens_per_second"] = round(self.measure_speed(), 1)
        with self.path.open("a", encoding="utf8") as stream:
            stream.write(json.dumps(line) + "\n")


class Flow(Watcher):
    """Decides at the end of each step whether training stops, evaluates or saves a checkpoint.

    Checkpoints are saved every ``save_steps`` steps; without that, after some minutes, at moments that change nothing
    of what is trained and logged. After the last step the model is evaluated and saved.
    """

    def __init__(self, training: Training, stop: Stop, *, validates: bool) -> None:
        self.training, self.stop, self.validates = training, stop, validates
        self.saved = time.monotonic()

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Restore the sum of the losses since the last log line, and start the clock."""
        self.trainer.restore_loss()
        self.saved = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Add our reasons to stop, evaluate, save or log to those of transformers."""
        last = state.global_step >= state.max_steps
        control.should_evaluate = self.validates and (control.should_evaluate or last)
        stop, due = self._agree(args, state)
        control.should_training_stop = control.should_training_stop or stop
        control.should_save = control.should_save or stop or due or (last and self.training.is_saved_regularly)
        control.should_log = control.should_log or last

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop when the validation loss has not fallen for ``patience`` evaluations; save where it is the lowest."""
        losses = read_losses(vars(state))
        if self.training.export == "lowest" and is_lowest(losses):
            control.should_save = True
        if is_exhausted(losses, self.training.patience):
            control.should_training_stop = True
            control.should_save = control.should_save or self.training.is_saved_regularly

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock for the next checkpoint."""
        self.saved = time.monotonic()

    def _agree(self, args: TrainingArguments, state: TrainerState) -> tuple[bool, bool]:
        """Return whether to stop, because of a signal, and whether a checkpoint is due by the clock.

        The answer is the same in all processes; with several of them it is agreed on every ``log_steps`` steps.
        """
        if args.world_size == 1:
            return self.stop.is_set, self._is_due()
        if state.global_step % self.training.log_steps:
            return False, False
        flags = torch.tensor([self.stop.is_set, self._is_due() and state.is_world_process_zero], dtype=torch.int64)
        flags = flags.to(args.device)
        torch.distributed.all_reduce(flags)
        return bool(flags[0]), bool(flags[1])

    def _is_due(self) -> bool:
        if self.training.save_steps or not self.training.is_saved_regularly:
            return False
        pause = max(60 * self.training.save_minutes, self.trainer.saving_seconds / MAX_SAVING_SHARE)
        return time.monotonic() - self.saved >= pause


def describe_divergence(sentence: str, training: Training, run: Path) -> str:
    """Say what went wrong, which checkpoint is good, and what to try."""
    there = checkpoints.list_checkpoints(run / "checkpoints")
    kept = f"the last good checkpoint is {there[-1]}" if there else "no checkpoint was saved before"
    return (
        f"{sentence}; training stopped, {kept}. Try a lower training.learning_rate (now {training.rate:g}), "
        f"more training.warmup_steps (now {training.warmup}), training.clip = 1.0, or model.norm = 'pre'"
    )


class Health(Watcher):
    """Stops a run whose loss, also of validation, is NaN or infinite, or exceeds ``explosion`` times the first.

    It saves no checkpoint.
    """

    def __init__(self, training: Training, run: Path) -> None:
        self.training, self.run = training, run

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **_: Any) -> None:
        """Judge the losses of a log line. Raises Diverged."""
        for name, what in (("loss", "loss"), ("eval_loss", "validation loss")):
            if name in logs:
                self._judge(float(logs[name]), state, what)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Judge the losses that were not logged yet before a checkpoint is saved. Raises Diverged."""
        if control.should_save and not control.should_log:
            loss = self.trainer.compute_running_loss()
            if loss is not None:
                self._judge(loss, state)

    def _judge(self, loss: float, state: TrainerState, what: str = "loss") -> None:
        first = next((line["loss"] for line in state.log_history if "loss" in line), loss)
        if not math.isfinite(loss):
            bad = int(self.trainer.first_bad)
            sentence = f"the {what} at step {bad if bad >= 0 else state.global_step} is {loss}"
        elif what == "loss" and self.training.explosion and loss > self.training.explosion * first:
            sentence = f"the loss rose to {loss:.3g} at step {state.global_step}, from {first:.3g} at the start"
        else:
            return
        raise Diverged(describe_divergence(sentence, self.training, self.run))


class ProgressBar(Watcher):
    """Shows step, loss, validation loss, target tokens per second and the time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(errors=True)
        columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[text]}"), TimeRemainingColumn())
        self.bar = Progress("step", *columns, console=self.console, transient=True)
        self.updated = 0.0
        self.begun = (0.0, 0)
        self.texts: dict[str, str] = {}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Show an empty bar, or nothing yet."""
        super().on_train_begin(args, state, control)
        self.begun = (time.monotonic(), state.global_step)
        if state.is_world_process_zero and self.console.is_terminal:
            self.bar.add_task("", total=state.max_steps, completed=state.global_step, text="")
            self.bar.start()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Move the bar, at most ten times a second."""
        if self.bar.tasks and time.monotonic() - self.updated > REFRESH:
            self.updated = time.monotonic()
            self.bar.update(self.bar.task_ids[0], completed=state.global_step)

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **_: Any) -> None:
        """Show the new numbers in the bar; without a bar, print them."""
        if not state.is_world_process_zero or not {"loss", "eval_loss"} & set(logs):
            return
        if "loss" in logs:
            self.texts["loss"] = f"loss {logs['loss']:.4f}"
            self.texts["speed"] = f"{self.measure_speed():,.0f} tokens/s"
        if "eval_loss" in logs:
            self.texts["validation"] = f"validation loss {logs['eval_loss']:.4f}"
        if self.bar.tasks:
            text = "  ".join(self.texts[name] for name in ("loss", "validation", "speed") if name in self.texts)
            self.bar.update(self.bar.task_ids[0], completed=state.global_step, text=text)
            return
        new = ("validation",) if "eval_loss" in logs else ("loss", "speed")
        started, first = self.begun
        left = describe_time_left(state.global_step - first, state.max_steps - first, time.monotonic() - started)
        parts = (f"step {state.global_step:,} of {state.max_steps:,}", *(self.texts[name] for name in new), left)
        self.console.print("  ".join(part for part in parts if part), highlight=False)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar.tasks:
            self.bar.stop()
