"""``clockhands check``: does a model handle position correctly, and which uses are safe?"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from clockhands.cli.common import DeviceOptions, prepare, report_new_folder
from clockhands.cli.flags import POSITIONAL, list_given
from clockhands.errors import UsageError
from clockhands.streams import replace_controls

if TYPE_CHECKING:
    from clockhands.checking.against import Deviation
    from clockhands.checking.result import Result

_WEIGHTS = ("dtype", "device", "weights")
_OUTPUT = ("json", "report", "badge", "card", "verbose")
NOTES = """exit codes:
  0  nothing failed (with --baseline: nothing became worse; with --own: nothing of the model itself)
  1  a check failed, the logits are not those of --against, or a file or a server could not be read
  2  wrong usage"""
# What a way of checking has no use for, and why: an option is honoured or refused, never dropped.
_REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "list": (
        ("tiny", "own", "slow", "against", "baseline", "trust_remote_code", *_OUTPUT, *_WEIGHTS),
        "nothing is checked",
    ),
    "tiny": (_WEIGHTS, "the weights are initialised at random, in float32 on the CPU"),
    "json": (("verbose",), "the JSON holds everything"),
    "type": (("trust_remote_code",), "an architecture of transformers brings no code of its own"),
    "runtime": (
        ("tiny", "slow", "trust_remote_code", *_WEIGHTS),
        "the program that runs it decides about weights and devices",
    ),
}
_BESIDE = ("only", "slow", "baseline", "report", "badge", "card", "verbose")
"""Options with which ``--against`` is one more thing to check."""
EXAMPLES = (
    "clockhands check --type llama --tiny",
    "clockhands check --type roberta:causal --tiny --only generate,padding",
    "clockhands check --type gpt2 --tiny --json",
    "clockhands check --list",
)


@dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """What is checked, and what is printed and written.

    Args:
        model: a model folder, one of our runs, or a hub name; or what another program runs: *.onnx, *.gguf or the
            address of a server with /completions, such as http://127.0.0.1:8000/v1
        served: the model at a server, by its name (default: the only one)
        type: an architecture of transformers, by name; needs --tiny
        tiny: check a small, randomly initialised model with this configuration; no weights are loaded
        only: run only these checks or groups: packing,cache,padding.right
        own: count the model's own faults alone, not those of its library, which make it fail
        slow: add compiled checks: flex attention, compile, export
        against: compare with reference model REF and report the first position and layer that differ; with --only,
            --slow, --baseline, --report or --verbose the checks run too; with what another program runs, the model of
            transformers that it was made from
        baseline: an earlier --json result, or a file with one a line: fail only if a check became worse
        json: print the result as JSON
        report: write a page with all outcomes to FOLDER
        badge: write an SVG for a README: what passed, with which versions
        card: write Markdown for a README: faults of the model, of its library, safe uses
        verbose: list every check, also what passed or does not apply
        list: list all checks: what each asserts and catches
        dtype: precision of a real checkpoint (default: float32)
        device: cpu, cuda, cuda:1 (default: cpu)
        weights: hold the weights in memory, or stream them layer by layer from their files (default: memory if they
            fit)
        threads: number of threads of this process (default: 1 with --tiny)
        trust_remote_code: run code that comes with the model
    """

    model: Annotated[str | None, POSITIONAL] = None
    served: Annotated[str | None, "NAME", "--model"] = None
    type: Annotated[str | None, "NAME"] = None
    tiny: bool = False
    only: Annotated[str | None, "A,B"] = None
    own: bool = False
    slow: bool = False
    against: Annotated[str | None, "REF"] = None
    baseline: Annotated[str | None, "FILE"] = None
    json: bool = False
    report: Annotated[str | None, "FOLDER"] = None
    badge: Annotated[str | None, "FILE"] = None
    card: Annotated[str | None, "FILE"] = None
    verbose: bool = False
    list: bool = False
    dtype: str | None = None
    device: str | None = None
    weights: Literal["memory", "streamed"] | None = None
    threads: int | None = None
    trust_remote_code: bool = False

    @property
    def runtime(self) -> bool:
        """Whether another program runs the model."""
        from clockhands.checking.runtimes.program import is_program

        return is_program(self.model)


def _validate(options: Options) -> None:
    """Raise UsageError for options that exclude each other, and for a badge or a card in place of something else."""
    if [bool(options.model), bool(options.type), options.list].count(True) != 1:
        raise UsageError("name one thing to check: a model or --type NAME (or --list)")
    if options.served and not str(options.model).startswith(("http://", "https://")):
        raise UsageError(f"--model {options.served} is about a server: name its address, http://127.0.0.1:8000/v1")
    if options.type and not options.tiny:
        raise UsageError(f"--type {options.type} names no weights: add --tiny")
    for mode, (refused, why) in _REFUSED.items():
        used = list_given(options, refused)
        outruled = mode == "type" and options.against  # a reference may be a folder with code of its own
        if getattr(options, mode) and used and not outruled:
            label = f"{options.model} (a runtime)" if mode == "runtime" else f"--{mode}"
            raise UsageError(f"{label} does not go with {', '.join(used)}: {why}")
    for name, mark in ((options.badge, b'aria-label="position: '), (options.card, b" handles position")):
        path = Path(name or "new")
        if name and (not path.name or path.is_dir()):
            raise UsageError(f"{path} is a folder: name a file to write to")
        if name and path.is_file() and path.stat().st_size:
            with path.open("rb") as stream:
                if mark not in stream.readline(4096):
                    raise UsageError(f"{path} exists, and no earlier check wrote it; name another file")


def split_names(text: str | None) -> list[str] | None:
    """Return the names of ``--only``, which stand between commas; None where the option was not given.

    Raises UsageError where nothing stands there: no check would be made, and all of them would pass.
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"--only {text!r} names no check: write --only padding,cache.steps, or leave it out")
    return names


def run(options: Options) -> int:
    """Check a model, or list the checks; return 0 if nothing failed, else 1."""
    _validate(options)
    if options.threads is None and options.tiny:
        options = replace(options, threads=1)  # small tensors: more threads only wait for each other
    prepare(options)
    if options.list:
        from clockhands.checking.checks.check import select

        checks = select(split_names(options.only), optional=True)
        groups = [check.name.partition(".")[0] for check in checks]
        # A group may be spread over several modules, one of the user's own among them.
        for check in sorted(checks, key=lambda check: groups.index(check.name.partition(".")[0])):
            print(f"{check.name:24} {check.asserts}\n{'':24} catches: {check.catches}{' (--slow)' * check.optional}")
        return 0
    names = ("tiny", "dtype", "device", "weights", "trust_remote_code", "served")
    return _check_model(options, {name: getattr(options, name) for name in names})


def _check_model(options: Options, opening: dict[str, Any]) -> int:
    """Run the checks, and the comparison with a reference if there is one; return 0 if both hold, else 1."""
    from clockhands.checking.against import compare
    from clockhands.checking.examination import examine, only_build
    from clockhands.checking.result import changes, load
    from clockhands.progress import ProgressCounter
    from clockhands.report.write import find_earlier_files

    model = options.type or str(options.model)
    # Read before anything is checked, so that a wrong file is reported at once.
    before = load(options.baseline) if options.baseline else None
    if options.type and (options.badge or options.card):
        only_build(options.type)  # they are about one model
    if options.report and not options.type:
        find_earlier_files(Path(options.report))
    deviation = compare(model, options.against, **opening) if options.against else None
    data: list[dict[str, Any]] = []
    results: list[Result] = []
    if deviation is None or options.runtime or list_given(options, _BESIDE):
        against = options.against if options.runtime else None
        with ProgressCounter() as progress:
            results = examine(
                model, **opening, only=split_names(options.only), slow=options.slow, progress=progress, against=against
            )
        data = [result.as_dict() for result in results]
        data[0] |= {} if deviation is None else {"against": deviation.as_dict()}
    elif deviation is not None:
        data = [deviation.as_dict()]
    if options.json:
        print(json.dumps(data[0] if len(data) == 1 else data, ensure_ascii=False, indent=1))
    else:
        if deviation is not None:
            _print_lines(deviation.text())
        for result in results:
            _print_result(result, options)
    if results:
        _write_files(results, deviation, options)
    differs = deviation is not None and not deviation.same
    if before is None:
        return int(differs or any(result.failed_itself if options.own else result.failed for result in results))
    worse = changes(before, results)
    for line in worse:
        print(replace_controls(f"worse than {options.baseline}: {line}"), file=sys.stderr)
    return int(differs or bool(worse))


def _print_lines(text: str, indent: int = 6) -> None:
    """Print lines that begin with a verdict, none of them too long to read."""
    for line in text.splitlines():
        spaces = " " * indent
        print(textwrap.fill(line, 160, subsequent_indent=spaces, break_long_words=False, break_on_hyphens=False))


def _print_outcome(head: str, text: str) -> None:
    # One paragraph: text of somebody's model must not begin a line, which pipelines may read as a command.
    _print_lines(f"{head:9} {' '.join(text.splitlines())}", indent=10)


def _print_result(result: Result, options: Options) -> None:
    """Print the summary, what one may rely on, and the outcomes from the worst on; every check with ``--verbose``."""
    from clockhands.checking.result import ORDER, list_reliances
    from clockhands.checking.verdict.outcome import sentence

    alone = "" if options.against or result.fault else " (without --against its base and pairing cannot be judged)"
    _print_lines(result.summary(options.own) + alone)
    versions = " · ".join(f"{name} {version}" for name, version in result.versions.items())
    count = len(result.outcomes)
    checks = f"{count} check{'s' * (count != 1)}"
    print(f"{result.model} · {result.scheme} · {checks} in {result.seconds:.1f} s · {versions}")
    known = [reliance for reliance in list_reliances(result.outcomes) if reliance.safe is not None]
    print("You may rely on:" if known else "You may rely on: nothing that was checked whole.")
    for reliance in known:
        _print_outcome("", f"{reliance.use:34} {reliance.describe()}")
    for verdict in ORDER:
        outcomes = [outcome for outcome in result.outcomes if outcome.verdict == verdict]
        if verdict in ("PASS", "N/A") and not options.verbose:
            # Of the source side of an encoder-decoder, on which most checks say nothing, the number is enough.
            names = [outcome.check for outcome in outcomes if not outcome.check.startswith("source.")]
            names += [f"{count} of the source side"] if (count := len(outcomes) - len(names)) else []
            if names:
                _print_outcome(verdict, ", ".join(names))
            for outcome in outcomes:
                if verdict == "PASS" and outcome.reason and outcome.confirmed is None:  # a remark
                    _print_outcome("", f"{outcome.check}: {outcome.reason}.")
            continue
        for outcome in outcomes:
            said = sentence(outcome).removeprefix(verdict).strip(" .") or "holds"
            _print_outcome(verdict, f"{outcome.check}: {said}.")
            if verdict in ("FAIL", "LIBRARY") and os.environ.get("GITHUB_ACTIONS") == "true":
                level = "error" if verdict == "FAIL" or not options.own else "warning"
                place = _find_line(options.model, outcome.where)
                print(f"::{level} {place}title=clockhands check {outcome.check}::{_escape(said)}")


def _find_line(model: str | None, where: str) -> str:
    """Return file and line of a folder's own code that a cause names, else its configuration; "" without a folder.

    As annotations of GitHub's pipelines name them.
    """
    if not model or not (Path(model) / "config.json").is_file():
        return ""
    folder = Path(os.path.relpath(model))
    places = [place.strip().partition(":") for place in where.split(",")]
    known = [(name, int(n)) for name, _, n in places if name and n.isdigit() and (folder / name).is_file()]
    name, line = (*known, ("config.json", 1))[0]
    file = _escape(str(folder / name)).replace(",", "%2C").replace(":", "%3A")
    return f"file={file},line={line},"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _write_files(results: Sequence[Result], deviation: Deviation | None, options: Options) -> None:
    """Write the badge and card of the first model, and a page for every model, whatever of these was asked for.

    The page begins with the comparison with a reference; of several, each goes into its own folder.
    """
    from clockhands.checking.card import describe_badge, describe_versions, make_card
    from clockhands.files import write_text
    from clockhands.report import write
    from clockhands.report.badge import make_badge

    if options.badge:
        message, light = describe_badge(results[0])
        title = f"{results[0].summary()}. {describe_versions(results[0])}"
        print(f"badge: {write_text(options.badge, make_badge('position', message, light, title))}", file=sys.stderr)
    if options.card:
        print(f"card: {write_text(options.card, make_card(results[0]))}", file=sys.stderr)
    if not options.report:
        return
    with report_new_folder(options.report):
        for result in results:
            findings = result.findings()
            if deviation is not None:
                findings = replace(findings, items=(deviation.to_finding(), *findings.items))
            several = "" if len(results) == 1 else f"/{result.model.replace(':', '-')}"
            print(f"report: {write(findings, options.report + several)[0]}", file=sys.stderr)
