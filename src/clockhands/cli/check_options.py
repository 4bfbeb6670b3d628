"""The options of ``clockhands check``, and which of them go together."""

from __future__ import annotations

import argparse

from clockhands.cli.common import as_float, as_int
from clockhands.errors import UsageError

__all__ = ["arguments", "split_names", "validate"]

_WEIGHTS = ("dtype", "device", "weights")
_OUTPUT = ("json", "report", "badge", "card", "verbose")
_SWEEP = ("jobs", "limit", "kept", "builds", "releases")
# What a way of checking has no use for, and why: an option is honoured or refused, never dropped.
_REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "list": (
        ("tiny", "slow", "against", "baseline", "trust_remote_code", *_OUTPUT, *_WEIGHTS, *_SWEEP),
        "nothing is checked",
    ),
    "all": (
        ("against", "trust_remote_code", "threads", *_OUTPUT, *_WEIGHTS),
        "every architecture is shrunk, in a process of one thread, and the results are files in the folder",
    ),
    "board": (
        ("against", "baseline", "trust_remote_code", "threads", "kept", *_OUTPUT, *_WEIGHTS),
        "every architecture is shrunk, in processes of other environments, and the results are files in the folder",
    ),
    "against": (_SWEEP, "it compares two models by their logits"),
    "tiny": ((*_WEIGHTS, *_SWEEP), "the weights are initialised at random, in float32 on the CPU, in one process"),
    "json": (("verbose",), "the JSON holds everything"),
    "type": (("trust_remote_code",), "an architecture of transformers brings no code of its own"),
    "model": (_SWEEP, "they are about --all"),
    "runtime": (
        ("tiny", "slow", "trust_remote_code", *_WEIGHTS, *_SWEEP),
        "the program that runs it decides about weights and devices",
    ),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "model",
        nargs="?",
        help="a model folder, one of our runs, or a hub name; or what another program runs: *.onnx, *.gguf or "
        "the address of a server with /completions, such as http://127.0.0.1:8000/v1",
    )
    parser.add_argument(
        "--model", dest="served", metavar="NAME", help="the model at a server, by its name (default: the only one)"
    )
    parser.add_argument("--type", metavar="NAME", help="an architecture of transformers, by name; needs --tiny")
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="check a small, randomly initialised model with this configuration; no weights are loaded",
    )
    parser.add_argument("--only", metavar="A,B", help="run only these checks or groups: packing,cache,padding.right")
    parser.add_argument("--slow", action="store_true", help="add compiled checks: flex attention, compile, export")
    parser.add_argument(
        "--against",
        metavar="REF",
        help="compare with reference model REF and report the first position and layer that differ; "
        "with --only, --slow, --baseline, --report or --verbose the checks run too; with what another program runs, "
        "the model of transformers that it was made from",
    )
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        help="an earlier --json result, or results.jsonl of --all: fail only if a check became worse",
    )
    _add_output(parser)
    _add_sweep(parser)
    _add_loading(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Declare what is printed and written."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--report", metavar="FOLDER", help="write a page with all outcomes to FOLDER")
    parser.add_argument("--badge", metavar="FILE", help="write an SVG for a README: what passed, with which versions")
    parser.add_argument(
        "--card", metavar="FILE", help="write Markdown for a README: faults of the model, of its library, safe uses"
    )
    parser.add_argument("--verbose", action="store_true", help="list every check, also what passed or does not apply")
    parser.add_argument("--list", action="store_true", help="list all checks: what each asserts and catches")


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    """Declare the check of every architecture."""
    parser.add_argument(
        "--all",
        metavar="FOLDER",
        nargs="?",
        const="runs/conformance",
        help="check every architecture that transformers can build and write the matrix to FOLDER (default: %(const)s)",
    )
    parser.add_argument("--builds", metavar="A,B", help="with --all or --board: only these architectures")
    parser.add_argument(
        "--board",
        metavar="FOLDER",
        help="sweep under several releases of transformers, each in an environment that pip makes in FOLDER, and write "
        "what each broke and mended to FOLDER",
    )
    parser.add_argument(
        "--releases", metavar="N", help="with --board: how many minor releases, or which: 5.22.2,5.23.0 (default: 5)"
    )
    parser.add_argument(
        "--kept", action="store_true", help="with --all: check nothing, write the matrix of what FOLDER holds so far"
    )
    parser.add_argument("--jobs", type=as_int, help="number of processes for --all (default: 1)")
    parser.add_argument("--limit", type=as_float, help="seconds allowed for one architecture of --all (default: 120)")


def _add_loading(parser: argparse.ArgumentParser) -> None:
    """Declare how a model is loaded."""
    parser.add_argument("--dtype", help="precision of a real checkpoint (default: float32)")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 (default: cpu)")
    parser.add_argument(
        "--weights",
        choices=("memory", "streamed"),
        help="hold the weights in memory, or stream them layer by layer from their files (default: memory if they fit)",
    )
    parser.add_argument("--threads", type=as_int, help="number of threads of this process (default: 1 with --tiny)")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the model")


def validate(options: argparse.Namespace) -> None:
    """Raise UsageError for options that exclude each other, and for numbers out of range.

    ``runtime`` is set on the options: whether the model is one that another program runs.
    """
    options.runtime = _is_runtime(options.model)
    named = [bool(options.model), bool(options.type), bool(options.all), bool(options.board), options.list]
    if sum(named) != 1:
        raise UsageError("name one thing to check: a model, --type NAME, --all, --board FOLDER (or --list)")
    if options.releases and not options.board:
        raise UsageError("--releases is about --board FOLDER")
    if options.served and not str(options.model).startswith(("http://", "https://")):
        raise UsageError(f"--model {options.served} is about a server: name its address, http://127.0.0.1:8000/v1")
    if options.type and not options.tiny:
        raise UsageError(f"--type {options.type} names no weights: add --tiny")
    for mode, (refused, why) in _REFUSED.items():
        used = [f"--{name.replace('_', '-')}" for name in refused if getattr(options, name) not in (None, False)]
        # A reference may be a folder with code of its own, and --all is tiny in any case.
        outruled = (mode == "type" and options.against) or (mode == "tiny" and (options.all or options.board))
        outruled = outruled or (mode == "against" and options.runtime)
        if getattr(options, mode) and used and not outruled:
            label = {"model": "a model", "runtime": f"{options.model} (a runtime)"}.get(mode, f"--{mode}")
            raise UsageError(f"{label} does not go with {', '.join(used)}: {why}")
    if options.kept and (options.only or options.slow or options.jobs or options.limit or options.builds):
        raise UsageError("--kept checks nothing: it does not go with --only, --slow, --jobs, --limit, --builds")
    if options.jobs is not None:
        from clockhands.devices import check_threads

        check_threads(options.jobs, "--jobs")
    if options.limit is not None and options.limit <= 0:
        raise UsageError(f"--limit is {options.limit:g}; it must be more than 0 seconds")


def split_names(text: str | None) -> list[str] | None:
    """Return the names of ``--only`` or ``--builds``, which stand between commas; None where none were given."""
    return [name.strip() for name in text.split(",") if name.strip()] if text else None


def _is_runtime(name: str | None) -> bool:
    """Whether a name is that of something that another program runs; asked without importing that program."""
    if name is None:
        return False
    from clockhands.checking.runtimes.runtime import find_opener

    return find_opener(name) is not None
