"""What ``clockhands check`` makes of its results: lines on the terminal, files for a README, and the exit code."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clockhands.checking.result import Result
    from clockhands.checking.verdict.outcome import Outcome

__all__ = ["find_exit_code", "print_result", "read_baseline", "write_for_readme"]

_ORDER = ("FAIL", "LIBRARY", "WARN", "PROPERTY", "PASS", "N/A")


def print_result(result: Result, verbose: bool) -> None:
    """Print the summary, the outcomes from the worst on, and what one may rely on; every check if ``verbose``."""
    from clockhands.checking.outcome_words import sentence

    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(result.summary())
    versions = " · ".join(f"{name} {version}" for name, version in result.versions.items())
    count = len(result.outcomes)
    checks = f"{count} check{'s' * (count != 1)}"
    print(f"{result.model} · {result.scheme} · {checks} in {result.seconds:.1f} s · {versions}")
    for verdict in _ORDER:
        outcomes = [outcome for outcome in result.outcomes if outcome.verdict == verdict]
        if verdict in ("PASS", "N/A") and not verbose:
            if outcomes:
                print(f"{verdict:9} {_name_checks(outcomes)}")
            continue
        for outcome in outcomes:
            print(f"{verdict:9} {outcome.check}: {sentence(outcome).removeprefix(verdict).strip(' .') or 'holds'}.")
    print(result.reliance())


def _name_checks(outcomes: list[Outcome]) -> str:
    """Of the source side of an encoder-decoder, on which most checks say nothing, the number is enough."""
    own = [outcome.check for outcome in outcomes if not outcome.check.startswith("source.")]
    count = len(outcomes) - len(own)
    return ", ".join([*own, f"{count} of the source side"] if count else own)


def write_for_readme(result: Result, options: argparse.Namespace) -> None:
    """Write the badge and the card that were asked for."""
    from clockhands.checking.card import describe_badge, describe_versions, make_card
    from clockhands.files import write_text
    from clockhands.report.badge import make_badge

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
    results: list[Result], before: list[Result] | None, baseline: str | None, covers_all: bool = False
) -> int:
    """Return 1 if anything failed, or, beside a baseline, if anything became worse, which is printed; else 0."""
    if before is None:
        return int(any(result.failed for result in results))
    from clockhands.checking.result import changes

    worse = changes(before, results, covers_all)
    for line in worse:
        print(f"worse than {baseline}: {line}", file=sys.stderr)
    return int(bool(worse))
