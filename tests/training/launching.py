"""Launches trainings in two processes each, as ``torchrun`` does, from one process that has imported everything once.

Run as a program it answers one JSON line with another: ``{"words": [...], "counted": PATH or null}`` in, ``null`` or
what went wrong out. The words are those of the command ``clockhands``; with ``counted`` process r writes to ``PATH.r``
how many numbers of the model it kept.

The processes are started by PyTorch's own launcher, by fork: they need not import PyTorch and transformers again, which
takes longer than all else here. This process never computes, since PyTorch refuses backward passes in forks of one that
has made one. ``torchrun`` itself starts a training in the slow tests.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from clockhands import training
from clockhands.cli import main
from clockhands.training import session  # here, for all: else each process would import it, and the Trainer with it
from tests.curves import leave_curves_empty

ROOT = Path(__file__).parents[2]


class Launcher:
    """The other end: one training at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.training.launching"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=dict(environment),
        )  # fmt: skip

    def __call__(self, *words: str, counted: Path | None = None) -> None:
        """Run a command in two processes; with ``counted`` each notes how many numbers of the model it kept."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"words": words, "counted": counted and str(counted)}) + "\n")
        self.process.stdin.flush()
        fault = json.loads(self.process.stdout.readline())
        assert fault is None, fault

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Count(TrainerCallback):
    """Counts while the last step is still warm."""

    def __init__(self, path: str) -> None:
        self.path = path

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        local = [p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
        Path(f"{self.path}.{args.process_index}").write_text(str(sum(part.numel() for part in local)))


def run_words(words: list[str], counted: str | None) -> None:
    """What each of the two processes does; an exit code other than 0 is an error for the launcher."""
    if counted is not None:
        train = training.train
        training.train = lambda *args, **options: train(*args, callbacks=[Count(counted)], **options)
    code = main(words)
    if code:
        raise SystemExit(code)


def serve() -> None:
    """Answer until the input ends."""
    session.draw_curves = leave_curves_empty
    gc.collect()
    gc.freeze()
    # Whatever a training prints goes to standard error; the answers alone go to standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number, line in enumerate(sys.stdin):
        job = json.loads(line)
        config = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=2, run_id=str(number), rdzv_backend="c10d",
            rdzv_endpoint="localhost:0", start_method="fork", max_restarts=0,
        )  # fmt: skip
        fault = None
        try:
            elastic_launch(config, run_words)(job["words"], job["counted"])
        except ChildFailedError as failed:
            fault = str(failed)
        print(json.dumps(fault), file=answers, flush=True)


if __name__ == "__main__":
    serve()
