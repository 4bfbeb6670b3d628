"""``clockhands inspect``: what position does inside a run, a folder or a checkpoint of the hub."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from clockhands.cli.common import add_device, as_int, prepare, report_new_folder
from clockhands.errors import UsageError

if TYPE_CHECKING:
    from clockhands.findings import Findings
    from clockhands.models.subject import Side

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "clockhands inspect runs/tour",
    "clockhands inspect runs/tour --text README.md --texts 24 --length 32 --json > findings.json",
    "clockhands inspect runs/tour --side both",
    'clockhands inspect runs/tour --sentence "zweihundertdrei"',
    "clockhands inspect ./weights --ids ids.npy --out report",
    "clockhands inspect ./weights --tokenizer ./llama --text my.txt --out report",
    "clockhands inspect runs/tour runs/mine --out report",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "model", nargs="+", help="folder of a run or checkpoint, or a hub name; two are set side by side"
    )
    parser.add_argument(
        "--side",
        choices=("encoder", "decoder", "both"),
        help="which stack of an encoder-decoder, or both side by side (default: its encoder)",
    )
    parser.add_argument("--text", metavar="FILE", nargs="+", help="text to measure on (default: built-in English)")
    parser.add_argument(
        "--tokenizer", metavar="NAME", help="folder or hub name of a tokenizer (default: the model's own)"
    )
    parser.add_argument(
        "--ids",
        metavar="FILE.npy",
        help="token ids instead of text, as numpy.save wrote them: [texts, tokens], or [tokens] to be cut into windows",
    )
    parser.add_argument(
        "--sentence",
        action="append",
        metavar="TEXT",
        help="show this sentence: attention, its four terms, two words swapped; once for each sentence",
    )
    parser.add_argument("--out", metavar="FOLDER", default="report", help="where the page goes (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON instead of writing a page")
    parser.add_argument("--texts", type=as_int, default=96, help="windows of text to read (default: %(default)s)")
    parser.add_argument("--length", type=as_int, help="tokens in a window (default: 128, or what the model can read)")
    parser.add_argument(
        "--control",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="also measure the same model with fresh weights (default: unless it is very large)",
    )
    parser.add_argument("--trust-remote-code", action="store_true", help="run code that a checkpoint brings with it")
    add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Measure a model or two, and write a page or print the findings."""
    if len(options.model) > 2:
        raise UsageError(f"inspect takes one model or two to set side by side, not {len(options.model)}")
    if options.texts < 8:
        raise UsageError(f"--texts is {options.texts}; at least 8 windows are needed to tell position from chance")
    if options.length is not None and options.length < 8:
        raise UsageError(f"--length is {options.length}; a window has at least 8 tokens")
    if options.ids is not None and options.text is not None:
        raise UsageError("--text and --ids exclude each other: give the text, or its token ids")
    if any(not sentence.strip() for sentence in options.sentence or ()):
        raise UsageError("--sentence is empty; give a sentence of at least two tokens")
    if options.side == "both" and len(options.model) > 1:
        raise UsageError("--side both sets two stacks of one model side by side; give one model, or one side of two")
    prepare(options)
    sides: tuple[Side | None, ...] = ("encoder", "decoder") if options.side == "both" else (options.side,)
    each_model = [_inspect(model, side, options) for model in options.model for side in sides]
    from clockhands.report import put_side_by_side, show, write

    findings = each_model[0] if len(each_model) == 1 else put_side_by_side(*each_model)
    for note in _list_notes(each_model, findings):
        print(f"clockhands: {note}", file=sys.stderr)
    if options.json:
        print(findings.to_json())
        return 0
    with report_new_folder(options.out):
        paths = write(findings, options.out)
    show(findings)
    print(f"\n{paths[0]}")
    return 0


def _list_notes(each_model: list[Findings], compared: Findings) -> Iterator[str]:
    """Yield what is printed beside the page: that texts repeat each other, and what could not be compared."""
    from clockhands.inspection.measures.repeated_text import find_warning

    for findings in each_model:
        if note := find_warning(findings["text"]):
            yield f"{findings.facts['model']}: {note}"
    reasons = dict.fromkeys(
        str(item.details["not comparable"]) for item in compared if "not comparable" in item.details
    )
    if reasons:
        advice = "; give both one text with --text FILE" if any(" text" in reason for reason in reasons) else ""
        yield f"some measures are not comparable: {'; '.join(reasons)}{advice}"


def _inspect(model: str, side: Side | None, options: argparse.Namespace) -> Findings:
    from clockhands.inspection import inspect

    return inspect(
        model,
        options.tokenizer,
        _read_texts(options.text),
        ids=options.ids,
        length=options.length,
        count=options.texts,
        sentences=options.sentence or (),
        control=options.control,
        side=side,
        device=_choose_device(options.device),
        trust_remote_code=options.trust_remote_code,
        progress=True,
        command=_write_command(options),
    )


def _read_texts(files: list[str] | None) -> list[str] | None:
    """Read the text files; None where none are given."""
    if files is None:
        return None
    from clockhands.data.readers import read_documents

    return [document for file in files for document in read_documents(Path(file), "file", "utf-8")]


def _choose_device(name: str | None) -> str:
    """Return the device that was asked for, or the GPU where there is one."""
    import torch

    return name or ("cuda" if torch.cuda.is_available() else "cpu")


def _write_command(options: argparse.Namespace) -> str:
    """Return the command that measures this again."""
    words = ["clockhands", "inspect", *options.model]
    words += ["--side", options.side] if options.side else []
    words += ["--text", *options.text] if options.text else []
    words += [word for sentence in options.sentence or () for word in ("--sentence", sentence)]
    words += ["--ids", options.ids] if options.ids else []
    words += ["--tokenizer", options.tokenizer] if options.tokenizer else []
    words += ["--length", str(options.length)] if options.length else []
    words += ["--texts", str(options.texts)] if options.texts != 96 else []
    words += [] if options.control is None else ["--control" if options.control else "--no-control"]
    words += ["--trust-remote-code"] if options.trust_remote_code else []
    return shlex.join(words)
