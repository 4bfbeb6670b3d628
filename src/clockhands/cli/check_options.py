"""The options of ``clockhands check``, and which of them go together."""

from __future__ import annotations

import argparse

from clockhands.cli.common import as_int
from clockhands.errors import UsageError

__all__ = ["arguments", "split_names", "validate"]

_WEIGHTS = ("dtype", "device", "weights")
_OUTPUT = ("json", "report", "badge", "card", "verbose")
EXIT_CODES = """exit codes:
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


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = f"{parser.epilog or ''}\n\n{EXIT_CODES}"
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
    parser.add_argument(
        "--own",
        action="store_true",
        help="count the model's own faults alone, not those of its library, which make it fail",
    )
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
        help="an earlier --json result, or a file with one a line: fail only if a check became worse",
    )
    _add_output(parser)
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
    """Raise UsageError for options that exclude each other.

    ``runtime`` is set on the options: whether the model is one that another program runs.
    """
    from clockhands.checking.runtimes.program import is_program

    options.runtime = is_program(options.model)
    if [bool(options.model), bool(options.type), options.list].count(True) != 1:
        raise UsageError("name one thing to check: a model or --type NAME (or --list)")
    if options.served and not str(options.model).startswith(("http://", "https://")):
        raise UsageError(f"--model {options.served} is about a server: name its address, http://127.0.0.1:8000/v1")
    if options.type and not options.tiny:
        raise UsageError(f"--type {options.type} names no weights: add --tiny")
    for mode, (refused, why) in _REFUSED.items():
        used = [f"--{name.replace('_', '-')}" for name in refused if getattr(options, name) not in (None, False)]
        outruled = mode == "type" and options.against  # a reference may be a folder with code of its own
        if getattr(options, mode) and used and not outruled:
            label = f"{options.model} (a runtime)" if mode == "runtime" else f"--{mode}"
            raise UsageError(f"{label} does not go with {', '.join(used)}: {why}")


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
