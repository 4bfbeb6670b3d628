"""Kills trainings at every file that they write, goes on, and compares what stands at the end with a run never killed.

    python -m tests.training.killing FOLDER < JOBS > FINDINGS

The libraries are imported once; every training runs in a fork of this process, so that a kill costs less than a second.
A fork counts what it changes below the run folder (files opened for writing, made, renamed, deleted; those that
libraries in other languages write as well) and sends itself SIGKILL at the given one: *before* it happens, in the
*middle* of it (the file is there with half of what it is to hold), or at a moment of the clock.

A job is ``{"name": ..., "training": {...}, "kills": [[event, "before" | "middle"] or seconds, ...]}``: the first kill
strikes the training, each one after that what was begun to go on. What is found is an empty list or sentences.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tokenizers import Tokenizer

from clockhands.errors import CheckpointError
from clockhands.runs import Run
from clockhands.training import Recipe, TrainingData, prepare, resume, session, train
from tests.curves import leave_curves_empty
from tests.training.tiny import tables

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
TIMED = "tokens_per_second"
AGAIN = "give the command that started it again"

Kill = tuple[int, str] | float


class Killer:
    """Counts what this process changes below a folder, and ends it at one of these changes."""

    def __init__(self, folder: Path, event: int, how: str) -> None:
        self.folder, self.event, self.how = os.path.realpath(folder), event, how
        self.inside = False
        self.halves: list[bool] = []
        """Of every change so far, whether it can be caught in the middle."""

    def start(self) -> None:
        """Listen, for as long as the process lives."""
        sys.addaudithook(self._hear)
        for owner, name, position in ((torch, "save", 1), (safetensors.torch, "save_file", 1), (Tokenizer, "save", 1)):
            native = functools.partial(self._native, getattr(owner, name), position)
            setattr(owner, name, native if owner is not Tokenizer else _method(native))
        # transformers has taken the function into a module of its own.
        sys.modules["transformers.modeling_utils"].safe_save_file = safetensors.torch.save_file  # type: ignore[attr-defined]

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if self.inside:
            return
        if event == "open" and isinstance(given[0], str | os.PathLike) and given[2] & WRITES:
            self._met(str(given[0]), lambda: os.close(os.open(given[0], given[2], 0o666)))
        elif event in CHANGES and isinstance(given[0], str | os.PathLike):
            self._met(str(given[0]), None)

    def _met(self, path: str, act: Callable[[], object] | None) -> None:
        """One change: the process ends here if it is the one. ``act`` does the first half of it, if it has one."""
        # Relative names are those that rmtree deletes by the descriptor of their folder.
        if Path(path).is_absolute() and not os.path.realpath(path).startswith(self.folder):
            return
        self.halves.append(act is not None)
        if len(self.halves) != self.event:
            return
        self.inside = True
        if self.how == "middle" and act is not None:
            act()
        os.kill(os.getpid(), signal.SIGKILL)

    def _native(self, function: Callable[..., Any], position: int, *given: Any, **named: Any) -> Any:
        target = given[position] if len(given) > position else named.get("f", named.get("filename", named.get("path")))
        if isinstance(target, str | os.PathLike):
            self._met(str(target), lambda: _half(function, given, named, Path(target)))
        was, self.inside = self.inside, True
        try:
            return function(*given, **named)
        finally:
            self.inside = was


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given, **named: function(self, *given, **named)


def _half(function: Callable[..., Any], given: Any, named: Any, path: Path) -> None:
    function(*given, **named)
    os.truncate(path, path.stat().st_size // 2)


def forked(act: Callable[[], object], *, after: float | None = None) -> str:
    """Do it in a fork. ``done``, ``killed``, or what went wrong in it; ``after`` so many seconds it is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        word = "done"
        try:
            act()
        except BaseException as fault:
            word = f"{type(fault).__name__}: {fault}"
        os.write(writer, word.encode())
        os._exit(0)
    os.close(writer)
    end = None if after is None else time.monotonic() + after
    while end is not None:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            break
        if time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.002)
    with os.fdopen(reader, "rb") as stream:
        word = stream.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else f"signal {os.WTERMSIG(status)}"
    return word


def go_on(folder: Path, recipe: Recipe, material: TrainingData) -> None:
    """What a person does: resume; where there is nothing yet, or the message says so, give the command again."""
    if not folder.exists() or not any(folder.iterdir()):
        train(recipe, folder, material=material)
        return
    try:
        resume(folder)
    except CheckpointError as fault:
        if AGAIN not in str(fault) and any(item.name != ".lock" for item in folder.iterdir()):
            raise
        train(recipe, folder, material=material)


def strike(kill: Kill | None, folder: Path, act: Callable[[], object]) -> str:
    """Do it in a fork that ends as ``kill`` says."""
    if isinstance(kill, float):
        return forked(act, after=kill)

    def watched() -> None:
        if kill is not None:
            Killer(folder, *kill).start()
        act()

    return forked(watched)


def state(folder: Path) -> dict[str, Any]:
    """Everything in the folder of a run, by name, but for its speed and the name of the folder."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name] = "folder"
        elif path.name == "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_text("utf8").splitlines()]
            found[name] = [{key: value for key, value in line.items() if key != TIMED} for line in lines]
        else:
            found[name] = path.read_bytes()
    return found


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """In words."""
    words = [f"{name} is missing" for name in theirs if name not in ours]
    words += [f"{name} should not be there" for name in ours if name not in theirs]
    words += [f"{name} differs" for name in ours if name in theirs and ours[name] != theirs[name]]
    return words


class Trial:
    """A recipe with the run that was never killed."""

    def __init__(self, folder: Path, training: dict[str, Any]) -> None:
        # The curves bear the name of their folder: all runs have the same.
        self.recipe = Recipe.from_tables(tables(**training))
        self.material = prepare(self.recipe)
        self.place = folder
        self.whole = folder / "whole" / "run"
        # As for the runs that are killed: to make this folder too would count as a change.
        self.whole.parent.mkdir(parents=True)
        begun = time.monotonic()
        self.halves = self._train_whole()
        self.seconds = time.monotonic() - begun
        self.wanted = state(self.whole)
        self.changes = len(self.halves)

    def _train_whole(self) -> list[bool]:
        """Train without a kill; return, for every change that this makes, whether it has a middle."""
        note = self.place / "count"

        def counted() -> None:
            killer = Killer(self.whole, 0, "before")
            killer.start()
            train(self.recipe, self.whole, material=self.material)
            killer.inside = True
            note.write_text(json.dumps(killer.halves))

        assert forked(counted) == "done"
        found: list[bool] = json.loads(note.read_text())
        return found

    def run(self, kills: list[Kill]) -> tuple[int, list[str]]:
        """Kill, go on, kill again, ..., and go on to the end. How many kills struck, and what differs."""
        out = self.place / "killed" / "run"
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(exist_ok=True)
        struck = 0
        act: Callable[[], object] = functools.partial(train, self.recipe, out, material=self.material)
        for kill in kills:
            word = strike(kill, out, act)
            struck += word == "killed"
            if word not in ("killed", "done"):
                return struck, [word]
            act = functools.partial(go_on, out, self.recipe, self.material)
        word = forked(act)
        if word != "done":
            return struck, [word]
        if not Run(out).finished:
            return struck, ["it is not finished"]
        return struck, differences(state(out), self.wanted)


def points(trial: Trial, asked: Any, seed: int) -> list[list[Kill]]:
    """The kills that are asked for: at ``all`` changes, ``random N`` moments, ``thrice N``, or at shares of the run."""
    draw = random.Random(seed)
    if asked == "all":
        events = list(enumerate(trial.halves, 1))
        return [[(event, "before")] for event, _ in events] + [[(event, "middle")] for event, half in events if half]
    if isinstance(asked, list):
        return [[(1 + int(share * (trial.changes - 1)), how)] for share, how in asked]
    kind, count = asked.split()

    def some() -> Kill:
        if kind == "random":
            return draw.uniform(0, trial.seconds)
        return draw.randint(1, trial.changes), draw.choice(["before", "middle"])

    return [[some() for _ in range(1 if kind == "random" else 3)] for _ in range(int(count))]


def main() -> None:
    """Read jobs, run them, write what was found."""
    torch.set_num_threads(1)
    # Half of what a short training takes is drawing, and collecting garbage among what the imports left.
    session.draw_curves = leave_curves_empty
    gc.collect()
    gc.freeze()
    report = []
    for number, job in enumerate(json.load(sys.stdin)):
        trial = Trial(Path(sys.argv[1]) / str(number), job["training"])
        for asked in job["kills"]:
            chosen = points(trial, asked, job.get("seed", 0))
            struck, faults = 0, []
            for kills in chosen:
                hit, words = trial.run(kills)
                struck += hit
                faults += [f"{kills}: {word}" for word in words]
            name = asked if isinstance(asked, str) else "sample"
            facts = {"job": job["name"], "kills": name, "changes": trial.changes, "runs": len(chosen), "struck": struck}
            report.append({**facts, "faults": faults})
            print(re.sub(r"\s+", " ", str(report[-1]))[:2000], file=sys.stderr, flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
