"""``clockhands check --all`` and ``--board``: every architecture, under one release of transformers or several."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from clockhands.cli.check_options import split_names
from clockhands.cli.check_results import find_exit_code, read_baseline
from clockhands.cli.common import report_new_folder

if TYPE_CHECKING:
    from clockhands.checking.result import Result

__all__ = ["make_board", "make_matrix"]


def make_matrix(options: argparse.Namespace) -> int:
    """Check every architecture and write the matrix; return 1 if anything failed or became worse, else 0."""
    from clockhands.checking.matrix import matrix
    from clockhands.report.matrix_page import write_matrix

    before = read_baseline(options)
    with report_new_folder(options.all):
        results = _sweep(options)
    for path in write_matrix(matrix(results), options.all):
        print(path)
    failures = sum(result.count("FAIL") + bool(result.fault) for result in results)
    if before is None and failures:
        advice = f"--baseline {options.all}/results.jsonl fails only if a check became worse"
        print(f"{failures} checks fail or models cannot be built; {advice}", file=sys.stderr)
    return find_exit_code(results, before, options.baseline, covers_all=True)


def _sweep(options: argparse.Namespace) -> list[Result]:
    """Return the result of every architecture; with ``--kept``, of those that the folder holds so far."""
    from clockhands.checking.sweep import read_kept, sweep

    def progress(result: Result, done: int, total: int) -> None:
        marks = (
            result.fault
            or f"{result.count('PASS')} pass, {result.count('FAIL')} fail, {result.count('LIBRARY')} of the library"
        )
        print(f"{done}/{total} {result.model} {result.seconds:.1f} s: {marks}", file=sys.stderr, flush=True)

    if options.kept:
        return read_kept(options.all)
    return sweep(
        _choose_builds(options),
        options.all,
        only=split_names(options.only),
        slow=options.slow,
        workers=options.jobs or 1,
        limit=options.limit or 120.0,
        progress=progress,
    )


def _choose_builds(options: argparse.Namespace) -> list[str]:
    """Return the named builds, or all. Raises UsageError for a name that is none, or stands for several."""
    from clockhands.checking.sweep import list_builds

    if not options.builds:
        return list_builds()
    from clockhands.checking.examination import only_build

    return [only_build(name).name for name in split_names(options.builds) or []]


def make_board(options: argparse.Namespace) -> int:
    """Sweep under several releases, each in an environment of its own, and write what each broke and mended."""
    from clockhands.checking.board import compare_releases, find_releases, sweep_release
    from clockhands.report.board_page import write_board

    def show(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    passed_on = [(f"--{name}", getattr(options, name)) for name in ("only", "jobs", "limit")]
    options_of_sweep = [word for name, value in passed_on if value is not None for word in (name, str(value))]
    options_of_sweep += ["--slow"] if options.slow else []
    builds = _choose_builds(options) if options.builds else []
    swept = {}
    with report_new_folder(options.board):
        for release in find_releases(options.releases or "5"):
            swept[release] = sweep_release(Path(options.board).absolute(), release, builds, options_of_sweep, show)
    for path in write_board(compare_releases(swept, whole=not builds), options.board):
        print(path)
    return 0
