"""``clockhands check``: does a model handle position correctly, and which uses are safe?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from clockhands.cli.check_options import arguments, validate
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
_CHECKING = (
    "only",
    "slow",
    "baseline",
    "report",
    "badge",
    "card",
    "verbose",
)  # with these --against is one more thing to check
_ORDER = ("FAIL", "LIBRARY", "WARN", "PROPERTY", "PASS", "N/A")


def run(options: argparse.Namespace) -> int:
    """Check a model, list the checks or check every architecture; return 0 if nothing failed, else 1."""
    validate(options)
    if options.threads is None and (options.tiny or options.all):
        options.threads = 1  # small tensors: more threads only wait for each other
    prepare(options)
    if options.list:
        return _list(_words(options.only))
    if options.all:
        return _matrix(options)
    if options.board:
        return _board(options)
    if options.against and not options.runtime and not any(getattr(options, name) for name in _CHECKING):
        return _against(options)
    return _checked(options)


def _checked(options: argparse.Namespace) -> int:
    """The checks, and what the comparison with a reference says if there is one: both must hold."""
    before = _baseline(options)
    if options.type and (options.badge or options.card):
        from clockhands.checking.examination import only_build

        only_build(options.type)  # they are about one model
    deviation = _compare(options) if options.against and not options.runtime else None
    results = _examine(options)
    if options.json:
        data = [result.as_dict() for result in results]
        data[0] |= {} if deviation is None else {"against": deviation.as_dict()}
        print(json.dumps(data[0] if len(data) == 1 else data, ensure_ascii=False, indent=1))
    else:
        if deviation is not None:
            print(deviation.text())
        for result in results:
            _print_result(result, options.verbose)
    _write_for_readme(results[0], options)
    if options.report:
        from clockhands.report import write

        with report_new_folder(options.report):
            for result in results:
                folder = options.report if len(results) == 1 else f"{options.report}/{result.model.replace(':', '-')}"
                findings = result.findings()
                if deviation is not None:
                    findings = replace(findings, items=(deviation.to_finding(), *findings.items))
                print(f"report: {write(findings, folder)[0]}", file=sys.stderr)
    return _exit_code(results, before, options.baseline) or int(deviation is not None and not deviation.same)


def _write_for_readme(result: Result, options: argparse.Namespace) -> None:
    """Write the badge and the card."""
    from clockhands.checking.card import describe_badge, describe_versions, make_card
    from clockhands.files import write_text
    from clockhands.report.badge import make_badge

    if options.badge:
        message, light = describe_badge(result)
        title = f"{result.summary()}. {describe_versions(result)}"
        print(f"badge: {write_text(options.badge, make_badge('position', message, light, title))}", file=sys.stderr)
    if options.card:
        print(f"card: {write_text(options.card, make_card(result))}", file=sys.stderr)


def _examine(options: argparse.Namespace) -> list[Result]:
    from clockhands.checking import examine

    progress = _progress() if sys.stderr.isatty() else None
    if options.runtime:
        from clockhands.checking.runtimes.examination import examine_runtime

        return [examine_runtime(options.model, options.against, options.served, _words(options.only), progress)]
    return examine(
        options.type or options.model,
        tiny=options.tiny,
        only=_words(options.only),
        slow=options.slow,
        dtype=options.dtype,
        device=options.device,
        weights=options.weights,
        trust_remote_code=options.trust_remote_code,
        progress=progress,
    )


def _words(text: str | None) -> list[str] | None:
    return [word.strip() for word in text.split(",") if word.strip()] if text else None


def _progress() -> Callable[[Outcome], None]:
    def show(outcome: Outcome) -> None:
        print(f"\r\033[K{outcome.check} {outcome.verdict}", end="", file=sys.stderr, flush=True)

    return show


def _print_result(result: Result, verbose: bool) -> None:
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
                print(f"{verdict:9} {_names(outcomes)}")
            continue
        for outcome in outcomes:
            print(f"{verdict:9} {outcome.check}: {sentence(outcome).removeprefix(verdict).strip(' .') or 'holds'}.")
    print(result.reliance())


def _names(outcomes: list[Outcome]) -> str:
    """Of the source side of an encoder-decoder, on which most checks say nothing, the number is enough."""
    own = [outcome.check for outcome in outcomes if not outcome.check.startswith("source.")]
    count = len(outcomes) - len(own)
    return ", ".join([*own, f"{count} of the source side"] if count else own)


def _list(only: list[str] | None) -> int:
    from clockhands.checking.checks.check import select
    from clockhands.checking.runtimes.examination import select_laws

    about_runtimes = [name for name in only or () if name.partition(".")[0] == "runtime"]
    others = [name for name in only or () if name not in about_runtimes]
    checks = select(others or None, optional=True) if others or not only else []
    groups = list(dict.fromkeys(check.name.partition(".")[0] for check in checks))
    # A group may be spread over several modules, one of the user's own among them.
    for check in sorted(checks, key=lambda check: groups.index(check.name.partition(".")[0])):
        print(f"{check.name:24} {check.asserts}\n{'':24} catches: {check.catches}{' (--slow)' * check.optional}")
    for law in select_laws(about_runtimes or None) if about_runtimes or not only else []:
        print(f"{law.name:24} {law.asserts}\n{'':24} catches: {law.catches}")
    return 0


def _matrix(options: argparse.Namespace) -> int:
    from clockhands.checking.matrix import matrix
    from clockhands.checking.sweep import read_kept, sweep
    from clockhands.report.matrix_page import write_matrix

    def progress(result: Result, done: int, total: int) -> None:
        marks = (
            result.fault
            or f"{result.count('PASS')} pass, {result.count('FAIL')} fail, {result.count('LIBRARY')} of the library"
        )
        print(f"{done}/{total} {result.model} {result.seconds:.1f} s: {marks}", file=sys.stderr, flush=True)

    before = _baseline(options)
    with report_new_folder(options.all):
        results = (
            read_kept(options.all)
            if options.kept
            else sweep(
                _choose_builds(options),
                options.all,
                only=_words(options.only),
                slow=options.slow,
                workers=options.jobs or 1,
                limit=options.limit or 120.0,
                progress=progress,
            )
        )
    for path in write_matrix(matrix(results), options.all):
        print(path)
    failures = sum(result.count("FAIL") + bool(result.fault) for result in results)
    if before is None and failures:
        advice = f"--baseline {options.all}/results.jsonl fails only if a check became worse"
        print(f"{failures} checks fail or models cannot be built; {advice}", file=sys.stderr)
    return _exit_code(results, before, options.baseline, covers_all=True)


def _choose_builds(options: argparse.Namespace) -> list[str]:
    """Return the named builds, or all. Raises UsageError for a name that is none, or stands for several."""
    from clockhands.checking.sweep import list_builds

    if not options.builds:
        return list_builds()
    from clockhands.checking.examination import only_build

    return [only_build(name).name for name in _words(options.builds) or []]


def _board(options: argparse.Namespace) -> int:
    from pathlib import Path

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


def _against(options: argparse.Namespace) -> int:
    report = _compare(options)
    print(json.dumps(report.as_dict(), ensure_ascii=False, indent=1) if options.json else report.text())
    return 0 if report.same else 1


def _compare(options: argparse.Namespace) -> Deviation:
    from clockhands.checking.against import compare

    return compare(
        options.type or options.model,
        options.against,
        tiny=options.tiny,
        dtype=options.dtype,
        device=options.device,
        weights=options.weights,
        trust_remote_code=options.trust_remote_code,
    )


def _baseline(options: argparse.Namespace) -> list[Result] | None:
    """Read the baseline before anything is checked, so that a wrong file is reported at once."""
    from clockhands.checking.result import load

    return load(options.baseline) if options.baseline else None


def _exit_code(
    results: list[Result], before: list[Result] | None, baseline: str | None, covers_all: bool = False
) -> int:
    if before is None:
        return int(any(result.failed for result in results))
    from clockhands.checking.result import changes

    worse = changes(before, results, covers_all)
    for line in worse:
        print(f"worse than {baseline}: {line}", file=sys.stderr)
    return int(bool(worse))
