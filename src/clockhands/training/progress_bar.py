"""The progress of a training: a bar on a terminal, and a line for each log line anywhere else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from transformers import TrainerControl, TrainerState, TrainingArguments

from clockhands.progress import describe_time_left
from clockhands.streams import make_console
from clockhands.training.callbacks import Watcher

__all__ = ["REFRESH", "ProgressBar"]

REFRESH = 0.1
"""Seconds between two updates of the bar, so that it does not slow down short steps."""


class ProgressBar(Watcher):
    """Shows step, loss, validation loss, target tokens per second and the time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(errors=True)
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.updated = 0.0
        self.logged = (0.0, 0)
        self.begun = (0.0, 0)
        self.texts: dict[str, str] = {}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Show an empty bar, or how many steps there are."""
        self.logged = (time.monotonic(), 0)
        self.begun = (time.monotonic(), state.global_step)
        if not state.is_world_process_zero or not self.console.is_terminal:
            return
        columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[text]}"), TimeRemainingColumn())
        self.bar = Progress("step", *columns, console=self.console, transient=True)
        self.task = self.bar.add_task("", total=state.max_steps, completed=state.global_step, text="")
        self.bar.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Move the bar, at most ten times a second."""
        if self.bar is not None and time.monotonic() - self.updated > REFRESH:
            self.updated = time.monotonic()
            self.bar.update(self.task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Show the new numbers in the bar; without a bar, print them."""
        logs = logs or {}
        if not state.is_world_process_zero or not {"loss", "eval_loss"} & set(logs):
            return
        if "loss" in logs:
            self.texts["loss"] = f"loss {logs['loss']:.4f}"
            self.texts["speed"] = f"{self._speed():,.0f} tokens/s"
        if "eval_loss" in logs:
            self.texts["validation"] = f"validation loss {logs['eval_loss']:.4f}"
        new = ("validation",) if "eval_loss" in logs else ("loss", "speed")
        shown = new if self.bar is None else ("loss", "validation", "speed")
        text = "  ".join(self.texts[name] for name in shown if name in self.texts)
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step, text=text)
        else:
            started, first = self.begun
            left = describe_time_left(state.global_step - first, state.max_steps - first, time.monotonic() - started)
            parts = (f"step {state.global_step:,} of {state.max_steps:,}", text, left)
            self.console.print("  ".join(part for part in parts if part), highlight=False)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _speed(self) -> float:
        """Return the target tokens per second since the last call."""
        tokens = int(self.trainer.tokens)
        now = time.monotonic()
        speed = (tokens - self.logged[1]) / max(now - self.logged[0], 1e-9)
        self.logged = (now, tokens)
        return speed
