"""``clockhands check``: does a model handle position correctly, and which uses are safe?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from clockhands.cli.check_options import arguments, split_names, validate
from clockhands.cli.check_results import find_exit_code, print_result, print_text, read_baseline, write_for_readme
from clockhands.cli.common import prepare, report_new_folder

if TYPE_CHECKING:
    from clockhands.checking.against import Deviation
    from clockhands.checking.result import Result
    from clockhands.checking.verdict.outcome import Outcome

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "clockhands check --type llama --tiny",
    "clockhands check --type roberta:causal --tiny --only generate,padding",
    "clockhands check --type gpt2 --tiny --json",
    "clockhands check --list",
)
_CHECKING = ("only", "slow", "baseline", "report", "badge", "card", "verbose")
"""Options with which ``--against`` is one more thing to check."""


def run(options: argparse.Namespace) -> int:
    """Check a model, or list the checks; return 0 if nothing failed, else 1."""
    validate(options)
    if options.threads is None and options.tiny:
        options.threads = 1  # small tensors: more threads only wait for each other
    prepare(options)
    if options.list:
        return _list_checks(split_names(options.only))
    if options.against and not options.runtime and not any(getattr(options, name) for name in _CHECKING):
        return _compare_alone(options)
    return _check_model(options)


def _check_model(options: argparse.Namespace) -> int:
    """Run the checks, and the comparison with a reference if there is one; return 0 if both hold, else 1."""
    before = read_baseline(options)
    if options.type and (options.badge or options.card):
        from clockhands.checking.examination import only_build

        only_build(options.type)  # they are about one model
    deviation = _compare(options) if options.against else None
    results = _examine(options)
    if options.json:
        data = [result.as_dict() for result in results]
        data[0] |= {} if deviation is None else {"against": deviation.as_dict()}
        print(json.dumps(data[0] if len(data) == 1 else data, ensure_ascii=False, indent=1))
    else:
        if deviation is not None:
            print_text(deviation.text())
        for result in results:
            print_result(result, options)
    write_for_readme(results[0], options)
    if options.report:
        _write_pages(results, deviation, options.report)
    differs = deviation is not None and not deviation.same
    return find_exit_code(results, before, options.baseline, options.own) or int(differs)


def _write_pages(results: list[Result], deviation: Deviation | None, folder: str) -> None:
    """Write a page for every model, the comparison with a reference first; of several, each into its own folder."""
    from clockhands.report import write

    with report_new_folder(folder):
        for result in results:
            findings = result.findings()
            if deviation is not None:
                findings = replace(findings, items=(deviation.to_finding(), *findings.items))
            own = folder if len(results) == 1 else f"{folder}/{result.model.replace(':', '-')}"
            print(f"report: {write(findings, own)[0]}", file=sys.stderr)


def _examine(options: argparse.Namespace) -> list[Result]:
    """Run the checks on the model, or the laws on the program that runs it; every architecture of a type."""
    from clockhands.checking import examine

    progress = _make_progress() if sys.stderr.isatty() else None
    return examine(
        options.type or options.model,
        tiny=options.tiny,
        only=split_names(options.only),
        slow=options.slow,
        dtype=options.dtype,
        device=options.device,
        weights=options.weights,
        trust_remote_code=options.trust_remote_code,
        progress=progress,
        served=options.served,
        against=options.against if options.runtime else None,
    )


def _make_progress() -> Callable[[Outcome], None]:
    """Return what shows the last outcome in one line of the terminal."""

    def show(outcome: Outcome) -> None:
        print(f"\r\033[K{outcome.check} {outcome.verdict}", end="", file=sys.stderr, flush=True)

    return show


def _list_checks(only: list[str] | None) -> int:
    """Print what each check asserts and catches, by group; return 0."""
    from clockhands.checking.checks.check import select

    checks = select(only, optional=True)
    groups = list(dict.fromkeys(check.name.partition(".")[0] for check in checks))
    # A group may be spread over several modules, one of the user's own among them.
    for check in sorted(checks, key=lambda check: groups.index(check.name.partition(".")[0])):
        print(f"{check.name:24} {check.asserts}\n{'':24} catches: {check.catches}{' (--slow)' * check.optional}")
    return 0


def _compare_alone(options: argparse.Namespace) -> int:
    """Print where the model departs from the reference; return 0 if nowhere, else 1."""
    report = _compare(options)
    if options.json:
        print(json.dumps(report.as_dict(), ensure_ascii=False, indent=1))
    else:
        print_text(report.text())
    return 0 if report.same else 1


def _compare(options: argparse.Namespace) -> Deviation:
    """Return where the model departs from the reference."""
    from clockhands.checking.against import compare

    return compare(
        options.type or options.model,
        options.against,
        tiny=options.tiny,
        dtype=options.dtype,
        device=options.device,
        weights=options.weights,
        trust_remote_code=options.trust_remote_code,
        served=options.served,
    )
