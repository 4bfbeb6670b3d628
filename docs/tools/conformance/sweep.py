"""Check every architecture that transformers can build small, and write the matrix.

    python docs/tools/conformance/sweep.py FOLDER [--builds A,B] [--only A,B] [--jobs N] [--limit SECONDS] [--kept]

FOLDER/results.jsonl holds a line for each architecture; what it holds of these versions and checks is not done again,
so that a sweep goes on where it was stopped. From it FOLDER/matrix.json.gz and FOLDER/index.html are made (``--kept``:
from what is there, nothing is checked). ``clockhands check ... --baseline FOLDER/results.jsonl`` reads it too.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

from matrix import matrix, write_matrix

import clockhands.checking
from clockhands.checking.checks.check import select
from clockhands.checking.result import Result, versions
from clockhands.errors import DataError, UsageError

Check = Callable[[str, Sequence[str] | None], dict[str, Any]]
_LOCAL = threading.local()
_MEASURE = ("checks", "fitting", "models", "verdict")  # the folders whose code decides a verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep, and write the matrix; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--builds", type=lambda text: text.split(","), help="only these architectures")
    parser.add_argument("--only", type=lambda text: text.split(","), help="only these checks or groups")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one architecture")
    parser.add_argument("--kept", action="store_true", help="check nothing: write the matrix of what FOLDER holds")
    options = parser.parse_args(arguments)
    if not options.kept:
        sweep(options.builds or list_builds(), options.folder, options.only, options.jobs, options.limit, tell)
    for path in write_matrix(matrix(read_kept(options.folder), identify_code()), options.folder):
        print(path)
    return 0


def tell(result: Result) -> None:
    """Print one line about one architecture."""
    counts = f"{result.count('PASS')} pass, {result.count('FAIL')} fail, {result.count('LIBRARY')} of the library"
    print(f"{result.model} {result.seconds:.1f} s: {result.fault or counts}", file=sys.stderr, flush=True)


def list_builds() -> list[str]:
    """Return the full names of all builds (``bert:masked``)."""
    from clockhands.checking.models.tiny import architectures

    return [build.name for build in architectures()]


def check_build(name: str, only: Sequence[str] | None) -> dict[str, Any]:
    """Check one architecture in this process, by one thread."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers.utils import logging

    from clockhands.checking.examination import examine

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    (result,) = examine(name, tiny=True, only=only)
    return result.as_dict()


def sweep(
    names: Sequence[str],
    folder: Path,
    only: Sequence[str] | None = None,
    jobs: int = 1,
    limit: float = 120.0,
    progress: Callable[[Result], None] = lambda result: None,
    check: Check = check_build,
) -> list[Result]:
    """Return the results of the named builds, in their order; what is measured is added to ``results.jsonl`` at once.

    An architecture that takes more than ``limit`` seconds, or ends its process, is recorded so, and the others go on.
    Builds that the folder has no result of come first. Raises UsageError for checks that do not exist.
    """
    wanted = {check.name for check in select(only)}
    path = folder / "results.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    installed = {**versions(), "code": identify_code()}
    older = {result.model: result for result in _read(path)}
    done = {name: old for name, old in older.items() if old.versions == installed and _answers(old, wanted)}
    todo = sorted((name for name in names if name not in done), key=older.__contains__)
    with path.open("a", encoding="utf8") as stream, ThreadPoolExecutor(jobs) as threads:
        worker = functools.partial(_check_apart, check=check, only=only, limit=limit)
        futures: list[Future[Result]] = [threads.submit(worker, name) for name in todo]
        for future in as_completed(futures):
            measured = future.result()
            result = replace(measured, versions={**measured.versions, "code": installed["code"]})
            stream.write(json.dumps(result.as_dict(), ensure_ascii=False) + "\n")
            stream.flush()
            done[result.model] = result
            progress(result)
    return [done[name] for name in names]


def _check_apart(name: str, check: Check, only: Sequence[str] | None, limit: float) -> Result:
    """Check one architecture in the process of this thread, which is ended where it hangs or crashes."""
    pool, started = _pool(), time.monotonic()
    try:
        return Result.from_dict(pool.submit(check, name, only).result(timeout=limit))
    except TimeoutError:
        fault = f"no answer within {limit:.0f} s"
    except BrokenProcessPool:
        fault = "the process ended by itself"
    except UsageError as wrong:
        fault = str(wrong)
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
    del _LOCAL.pool
    spent = round(time.monotonic() - started, 1)
    return Result(name, name.rpartition(":")[2], "", (), versions(), spent, fault)


def _pool() -> ProcessPoolExecutor:
    if not hasattr(_LOCAL, "pool"):
        _LOCAL.pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    return _LOCAL.pool


def read_kept(folder: Path) -> list[Result]:
    """Return the last result of each build that a sweep left in a folder. Raises DataError if there is none."""
    kept = {result.model: result for result in _read(folder / "results.jsonl")}
    if not kept:
        raise DataError(f"{folder / 'results.jsonl'} holds no result of a sweep")
    order = {name: number for number, name in enumerate(list_builds())}
    return sorted(kept.values(), key=lambda result: order.get(result.model, len(order)))


def _answers(result: Result, wanted: set[str]) -> bool:
    """Whether a kept result says something to every check that is asked now; a model that is lost has no other."""
    return bool(result.fault) or wanted <= {outcome.check.removeprefix("source.") for outcome in result.outcomes}


def _read(path: Path) -> Iterator[Result]:
    """Yield the results of a file; a line that was cut off in the middle is none."""
    for line in path.read_text(encoding="utf8").split("\n") if path.exists() else ():
        try:
            yield Result.from_dict(json.loads(line))
        except (json.JSONDecodeError, DataError):
            continue


@functools.cache
def identify_code() -> str:
    """Return eight hexadecimal digits of everything that decides a verdict; comments and docstrings do not count."""
    root = Path(clockhands.checking.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for folder in _MEASURE for path in (root / folder).rglob("*")):
        if path.suffix in (".py", ".toml"):
            text = path.read_text(encoding="utf8")
            digest.update(path.name.encode() + (strip_comments(text) if path.suffix == ".py" else text).encode())
    return digest.hexdigest()[:8]


def strip_comments(source: str) -> str:
    """Return the statements of a module without its docstrings and comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            node.body[0] = ast.Pass()
    return ast.dump(tree)


if __name__ == "__main__":
    sys.exit(main())
