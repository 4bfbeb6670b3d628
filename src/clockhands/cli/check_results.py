"""What ``clockhands check`` makes of its results: lines on the terminal, files for a README, and the exit code."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.errors import UsageError

if TYPE_CHECKING:
    from clockhands.checking.result import Result
    from clockhands.checking.verdict.outcome import Outcome

__all__ = ["find_exit_code", "print_result", "print_text", "read_baseline", "write_for_readme"]

_WIDTH = 160
_WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
_ORDER = ("FAIL", "LIBRARY", "WARN", "PROPERTY", "PASS", "N/A")


def print_result(result: Result, options: argparse.Namespace) -> None:
    """Print the summary, what one may rely on, and the outcomes from the worst on; every check with ``--verbose``."""
    from clockhands.checking.verdict.outcome import sentence

    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    alone = "" if options.against or result.fault else " (without --against its base and pairing cannot be judged)"
    print_text(result.summary(options.own) + alone)
    versions = " · ".join(f"{name} {version}" for name, version in result.versions.items())
    count = len(result.outcomes)
    checks = f"{count} check{'s' * (count != 1)}"
    print(f"{result.model} · {result.scheme} · {checks} in {result.seconds:.1f} s · {versions}")
    _print_reliances(result)
    for verdict in _ORDER:
        outcomes = [outcome for outcome in result.outcomes if outcome.verdict == verdict]
        if verdict in ("PASS", "N/A") and not options.verbose:
            if outcomes:
                _print_wrapped(verdict, _name_checks(outcomes))
            for outcome in outcomes:
                if verdict == "PASS" and outcome.reason and outcome.confirmed is None:  # a remark
                    _print_wrapped("", f"{outcome.check}: {outcome.reason}.")
            continue
        for outcome in outcomes:
            said = sentence(outcome).removeprefix(verdict).strip(" .") or "holds"
            _print_wrapped(verdict, f"{outcome.check}: {said}.")
            if verdict in ("FAIL", "LIBRARY") and os.environ.get("GITHUB_ACTIONS") == "true":
                level = "error" if verdict == "FAIL" or not options.own else "warning"
                _annotate(level, _find_line(options.model, outcome.where), outcome.check, said)


def print_text(text: str) -> None:
    """Print lines that begin with a verdict, none of them too long to read."""
    for line in text.splitlines():
        print(textwrap.fill(line, _WIDTH, subsequent_indent="      ", **_WHOLE))


def _print_reliances(result: Result) -> None:
    """Print a line for each use that is known to be safe or not."""
    from clockhands.checking.result import list_reliances

    known = [reliance for reliance in list_reliances(result.outcomes) if reliance.safe is not None]
    print("You may rely on:" if known else "You may rely on: nothing that was checked whole.")
    for reliance in known:
        _print_wrapped("", f"{reliance.use:34} {reliance.describe()}")


def _print_wrapped(head: str, text: str) -> None:
    print(textwrap.fill(f"{head:9} {text}", _WIDTH, subsequent_indent=" " * 10, **_WHOLE))


def _find_line(model: str | None, where: str) -> tuple[str, int] | None:
    """Return file and line of a folder's own code that a cause names, else its configuration; None without a folder."""
    if not model or not (Path(model) / "config.json").is_file():
        return None
    folder = Path(os.path.relpath(model))  # as pipelines name files
    for name, _, line in (place.strip().partition(":") for place in where.split(",")):
        if name and line.isdigit() and (folder / name).is_file():
            return str(folder / name), int(line)
    return str(folder / "config.json"), 1


def _annotate(level: str, place: tuple[str, int] | None, check: str, said: str) -> None:
    """Print an annotation as GitHub's pipelines show them, beside a line where a file is known."""
    escaped = said.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    file = "" if place is None else place[0].replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    where = f"file={file},line={place[1]}," if place else ""
    print(f"::{level} {where}title=clockhands check {check}::{escaped}")


def _name_checks(outcomes: list[Outcome]) -> str:
    """Of the source side of an encoder-decoder, on which most checks say nothing, the number is enough."""
    own = [outcome.check for outcome in outcomes if not outcome.check.startswith("source.")]
    count = len(outcomes) - len(own)
    return ", ".join([*own, f"{count} of the source side"] if count else own)


def write_for_readme(result: Result, options: argparse.Namespace) -> None:
    """Write the badge and the card that were asked for."""
    if not (options.badge or options.card):
        return
    from clockhands.checking.card import describe_badge, describe_versions, make_card
    from clockhands.files import write_text
    from clockhands.report.badge import make_badge

    for path in filter(None, (options.badge, options.card)):
        if not Path(path).name or Path(path).is_dir():
            raise UsageError(f"{path} is a folder: name a file to write to")
    if options.badge:
        message, light = describe_badge(result)
        title = f"{result.summary()}. {describe_versions(result)}"
        print(f"badge: {write_text(options.badge, make_badge('position', message, light, title))}", file=sys.stderr)
    if options.card:
        print(f"card: {write_text(options.card, make_card(result))}", file=sys.stderr)


def read_baseline(options: argparse.Namespace) -> list[Result] | None:
    """Read the baseline, None without one; before anything is checked, so that a wrong file is reported at once."""
    from clockhands.checking.result import load

    return load(options.baseline) if options.baseline else None


def find_exit_code(
    results: list[Result],
    before: list[Result] | None,
    baseline: str | None,
    own: bool = False,
) -> int:
    """Return 1 if anything failed (of ``own``: by the model itself), or, beside a baseline, became worse; else 0."""
    if before is None:
        return int(any(result.failed_itself if own else result.failed for result in results))
    from clockhands.checking.result import changes

    worse = changes(before, results)
    for line in worse:
        print(f"worse than {baseline}: {line}", file=sys.stderr)
    return int(bool(worse))
