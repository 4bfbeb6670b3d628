"""Every architecture, in worker processes: resumable, and neither a hang nor a crash stops it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from clockhands.checking.checks.check import select
from clockhands.checking.code_version import identify_code
from clockhands.checking.result import Result, versions
from clockhands.errors import DataError

Progress = Callable[[Result, int, int], None]
_LOOK = 2.0  # Four times as long as it waits between two looks.


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    build: str = ""
    seen: float = 0.0
    spent: float = 0.0


def sweep(
    names: Sequence[str],
    folder: str | Path,
    *,
    only: Sequence[str] | None = None,
    slow: bool = False,
    workers: int = 1,
    limit: float = 120.0,
    progress: Progress | None = None,
) -> list[Result]:
    """Check the named builds; what ``folder/results.jsonl`` holds of these versions and checks is not done again.

    Builds that the folder has no result of come first, then those that another version of the checks measured.

    ``limit``: seconds for one architecture, those not counted in which it or this process was suspended; past it the
    worker is ended and the architecture recorded as hanging.
    Results come back in the order of ``names``. Raises UsageError for a check that does not exist.
    """

    wanted = {check.name for check in select(only, slow)}  # Here once, and not in every worker.
    path = Path(folder) / "results.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    installed = {**versions(), "code": identify_code()}
    older = {kept.model for kept in _kept(path)}
    done = {kept.model: kept for kept in _kept(path) if kept.versions == installed and _answers(kept, wanted)}
    todo = deque(sorted((name for name in names if name not in done), key=lambda name: name in older))
    with path.open("a", encoding="utf8") as stream:
        for measured in _run(todo, only, slow, min(workers, max(len(todo), 1)), limit):
            result = replace(measured, versions={**measured.versions, "code": installed["code"]})
            stream.write(json.dumps(result.as_dict(), ensure_ascii=False) + "\n")
            stream.flush()
            done[result.model] = result
            if progress is not None:
                progress(result, sum(name in done for name in names), len(names))
    return [done[name] for name in names if name in done]


def read_kept(folder: str | Path) -> list[Result]:
    """Return the last result of each build that a sweep left in a folder. Raises DataError if there is none."""
    path = Path(folder) / "results.jsonl"
    kept = {result.model: result for result in _kept(path)}
    if not kept:
        raise DataError(f"{path} holds no result of a sweep: run clockhands check --all {folder} first")
    order = {name: number for number, name in enumerate(list_builds())}
    return sorted(kept.values(), key=lambda result: order.get(result.model, len(order)))


def _answers(result: Result, wanted: set[str]) -> bool:
    """Whether a kept result says something to every check that is asked now; a model that is lost has no other."""
    return bool(result.fault) or wanted <= {outcome.check.removeprefix("source.") for outcome in result.outcomes}


def _kept(path: Path) -> Iterator[Result]:
    """Results of an interrupted sweep; a line that was cut off in the middle is done again."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf8").split("\n"):
        try:
            yield Result.from_dict(json.loads(line))
        except (json.JSONDecodeError, DataError):
            continue


def _run(todo: deque[str], only: Sequence[str] | None, slow: bool, count: int, limit: float) -> Iterator[Result]:
    pool = [_start(only, slow) for _ in range(count if todo else 0)]
    try:
        for worker in pool:
            _give(worker, todo)
        while any(worker.build for worker in pool):
            busy = [worker for worker in pool if worker.build]
            wait([worker.pipe for worker in busy], timeout=0.5)
            for worker in busy:
                result = _collect(worker, limit)
                if result is None:
                    continue
                yield result
                if not worker.process.is_alive():
                    pool[pool.index(worker)] = worker = _start(only, slow)
                _give(worker, todo)
    finally:
        for worker in pool:
            worker.process.kill()
            worker.process.join(5)


def _start(only: Sequence[str] | None, slow: bool) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, only, slow), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _give(worker: _Worker, todo: deque[str]) -> None:
    worker.build = todo.popleft() if todo else ""
    worker.seen, worker.spent = time.monotonic(), 0.0
    if worker.build:
        worker.pipe.send(worker.build)


def _collect(worker: _Worker, limit: float) -> Result | None:
    """The worker's answer, or what became of it; None while it works."""
    try:
        if worker.pipe.poll():
            return Result.from_dict(worker.pipe.recv())
    except (EOFError, OSError):
        worker.process.join(5)
        return _lost(worker, f"the process ended with code {worker.process.exitcode}")
    _count(worker)
    if worker.spent < limit:
        return None
    worker.process.kill()
    worker.process.join(5)
    return _lost(worker, f"no answer within {limit:.0f} s")


def _count(worker: _Worker) -> None:
    """Add the time since the last look. More than two seconds of it mean that this process was suspended itself."""
    now = time.monotonic()
    stopped = False
    with contextlib.suppress(psutil.NoSuchProcess):
        stopped = psutil.Process(worker.process.pid).status() == psutil.STATUS_STOPPED
    worker.spent += 0.0 if stopped else min(now - worker.seen, _LOOK)
    worker.seen = now


def _lost(worker: _Worker, fault: str) -> Result:
    task = worker.build.rpartition(":")[2]
    return Result(worker.build, task, "", (), versions(), round(worker.spent, 1), fault)


def _serve(pipe: Connection, only: Sequence[str] | None, slow: bool) -> None:
    """One worker: names in, results out, until the parent is gone."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers.utils import logging

    from clockhands.checking.examination import examine_build
    from clockhands.checking.models.builds import find

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    checks = select(only, slow)
    while True:
        try:
            name = pipe.recv()
        except (EOFError, OSError):
            return
        (build,) = [candidate for candidate in find(name) if candidate.name == name]
        pipe.send(examine_build(build, checks).as_dict())


def list_builds() -> list[str]:
    """Return the full names of all builds (``bert:masked``)."""
    from clockhands.checking.models.builds import architectures

    return [build.name for build in architectures()]
