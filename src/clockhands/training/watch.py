"""What looks on while a run trains: the record on disk, a stop in time, and the order of log, save and evaluation."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clockhands.errors import ClockhandsError
from clockhands.files import write_text
from clockhands.training.sections import Training

if TYPE_CHECKING:
    from clockhands.training.trainer import ClockhandsTrainer

METRICS = "metrics.jsonl"
NAMES = {"eval_loss": "validation_loss", "loss": "loss", "learning_rate": "learning_rate", "grad_norm": "grad_norm"}


class TrainingStopped(ClockhandsError):
    """Somebody stopped the run in an orderly way; it can be resumed."""

    exit_code = 130


class Diverged(ClockhandsError):
    """The loss is no number any more, or many times what it was."""


class Stop:
    """A flag that Ctrl-C (or SIGTERM) raises while a run trains; the run ends after its step, with a checkpoint.

    A second Ctrl-C stops at once, and loses what was trained since the last checkpoint.
    """

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals raise the flag inside this context; only the main thread can listen."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, _: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class Watcher(TrainerCallback):
    """A callback that looks at what its Trainer counts."""

    trainer: ClockhandsTrainer | None = None


class Record(Watcher):
    """Writes ``metrics.jsonl``: at every log line step, loss, rate, norm of the gradient, target tokens per second."""

    def __init__(self, run: Path) -> None:
        self.path = run / METRICS
        self.clock = time.monotonic()
        self.seen = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Forget lines past the checkpoint from which training goes on."""
        self.clock, self.seen = time.monotonic(), 0
        if state.is_world_process_zero:
            kept = [line for line in read_metrics(self.path) if line["step"] <= state.global_step]
            write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        """One line for each log of the loss or the validation loss."""
        known = {NAMES[name]: value for name, value in (logs or {}).items() if name in NAMES}
        if not {"loss", "validation_loss"} & set(known) or not state.is_world_process_zero:
            return
        line = {"step": state.global_step, "epoch": round(state.epoch or 0.0, 4), **known}
        if "loss" in known and self.trainer is not None:
            line["tokens_per_second"] = self._speed(int(self.trainer.tokens))
        with self.path.open("a", encoding="utf8") as stream:
            stream.write(json.dumps(line) + "\n")

    def _speed(self, tokens: int) -> float:
        now = time.monotonic()
        speed = (tokens - self.seen) / max(now - self.clock, 1e-9)
        self.clock, self.seen = now, tokens
        return round(speed, 1)


class Flow(TrainerCallback):
    """Decides at the end of a step what follows: a stop that was asked for, an evaluation, a checkpoint.

    A checkpoint is always preceded by a log line: the line is where a loss that is no number is found, and a resumed
    run then logs the same means. The end of the run is evaluated.
    """

    def __init__(self, training: Training, stop: Stop, *, validates: bool) -> None:
        self.training, self.stop, self.validates = training, stop, validates

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """After the base class's own decisions."""
        last = state.global_step >= state.max_steps
        control.should_evaluate = self.validates and (control.should_evaluate or last)
        if self._asked(args, state):
            control.should_training_stop = control.should_save = True
        if last and self.training.save_steps:
            control.should_save = True
        control.should_log = control.should_log or control.should_save or last

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop when the validation loss has not fallen for ``patience`` evaluations."""
        losses = [line["eval_loss"] for line in state.log_history if "eval_loss" in line]
        patience = self.training.patience
        if patience and len(losses) - 1 - losses.index(min(losses)) >= patience:
            control.should_training_stop = True
            control.should_save = bool(self.training.save_steps)

    def _asked(self, args: TrainingArguments, state: TrainerState) -> bool:
        if args.world_size == 1:
            return self.stop.asked
        if state.global_step % self.training.log_steps:
            return False
        flag = torch.tensor(int(self.stop.asked), device=args.device)
        torch.distributed.all_reduce(flag)
        return bool(flag)


class Health(Watcher):
    """Stops a run whose loss is no number, or ``explosion`` times the first; no checkpoint is made of it."""

    def __init__(self, training: Training, run: Path) -> None:
        self.training, self.run = training, run

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Raises Diverged."""
        loss = (logs or {}).get("loss")
        if loss is None:
            return
        first = next((line["loss"] for line in state.log_history if "loss" in line), loss)
        if not math.isfinite(loss):
            assert self.trainer is not None
            bad = int(self.trainer.first_bad)
            raise Diverged(self._advice(f"the loss at step {bad if bad >= 0 else state.global_step} is {loss}"))
        if self.training.explosion and loss > self.training.explosion * first:
            found = f"the loss rose to {loss:.3g} at step {state.global_step}, from {first:.3g} at the start"
            raise Diverged(self._advice(found))

    def _advice(self, found: str) -> str:
        from clockhands.training.checkpoints import listed

        there = listed(self.run / "checkpoints")
        kept = f"the last good checkpoint is {there[-1]}" if there else "no checkpoint was saved before"
        return (
            f"{found}; training stopped, {kept}. Try a lower training.learning_rate (now {self.training.rate:g}), "
            f"more training.warmup_steps (now {self.training.warmup}), training.clip = 1.0, or model.norm = 'pre'"
        )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a ``metrics.jsonl``; a last line that was cut off in the writing is left out."""
    lines = []
    for written in path.read_text("utf8").split("\n") if path.is_file() else ():
        try:
            lines.append(json.loads(written))
        except ValueError:
            break
    return lines
