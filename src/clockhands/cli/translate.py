"""``clockhands translate``: sentences, a file or standard input."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from clockhands.cli.common import add_device, add_search, as_int, check_file, make_search, prepare
from clockhands.errors import ClockhandsError, UsageError
from clockhands.files import PART, open_growing, write_text
from clockhands.streams import get_raw_output

if TYPE_CHECKING:
    from clockhands.generation import Translation
    from clockhands.runs import Run

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    'clockhands translate runs/tour "zweihundertdrei"',
    "clockhands translate runs/mine --input test.de --beam 5 --output test.hyp",
    "clockhands translate runs/mine --json < test.de",
    'clockhands translate runs/tour "zweihundertdrei" --attention attention.svg',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", help="the folder of a trained run")
    parser.add_argument(
        "text", nargs="*", help="the sentences to translate; without any, --input or standard input is read"
    )
    parser.add_argument("--input", metavar="FILE", help="translate a file with one sentence a line (.gz too)")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write the translations to FILE instead of standard output; until the last one is done, those that are "
        "done are in FILE.part",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the files of --output and --attention if they exist"
    )
    parser.add_argument("--json", action="store_true", help="write JSON Lines with source, translation and score")
    parser.add_argument(
        "--attention", metavar="SVG", help="also draw to which source tokens each target token attends, to an SVG file"
    )
    parser.add_argument("--batch", type=as_int, metavar="N", help="translate N sentences at a time (default: 64)")
    add_search(parser)
    add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Translate sentences, a file or standard input, and print or write the translations."""
    if options.text and options.input:
        raise UsageError("give sentences or --input, not both")
    check_file("--output", options.output, overwrite=options.overwrite)
    check_file("--attention", options.attention, overwrite=options.overwrite, suffix=".svg")
    if options.output and options.attention and Path(options.output).absolute() == Path(options.attention).absolute():
        raise UsageError(f"--output and --attention both name {options.output}; give each its own file")
    part = f"{options.output}{PART}"
    if options.output and Path(part).exists() and not options.overwrite:
        raise UsageError(
            f"{part} exists (what an interrupted translation left); name another file, or pass --overwrite"
        )
    prepare(options)
    from clockhands.generation import translate
    from clockhands.runs import open_run

    opened = open_run(options.run, device=options.device)
    sentences = _get_only_sentence(_read_sentences(options)) if options.attention else _read_sentences(options)
    done = translate(opened, sentences, make_search(options))
    if options.attention:
        done = iter([_draw(opened, next(done), options.attention)])
    lines = (
        json.dumps({"source": t.source, "translation": t.text, "score": round(t.score, 6)}, ensure_ascii=False)
        if options.json
        else t.text
        for t in done
    )
    if options.output:
        _write(lines, options.output)
        return 0
    for line in lines:
        print(line, flush=True, file=get_raw_output())
    return 0


def _write(lines: Iterator[str], path: str) -> None:
    """Write each line as soon as it is made. If that ends early, the error says in which file the lines so far are."""
    count = 0
    try:
        with open_growing(path) as write:
            for line in lines:
                write(line)
                count += 1
    except (ClockhandsError, KeyboardInterrupt) as fault:
        if not count:
            raise
        stopped = isinstance(fault, KeyboardInterrupt)
        said = ClockhandsError(
            f"{'stopped' if stopped else fault}; the first {count:,} translations are in {path}{PART}"
        )
        said.exit_code = 130 if stopped else getattr(fault, "exit_code", 1)
        raise said from fault


def _read_sentences(options: argparse.Namespace) -> Iterator[str]:
    from clockhands.reading import decode_text, split_lines, stream_lines

    if options.text:
        yield from options.text
        return
    if options.input is None:
        # What is not UTF-8 on a pipe is replaced: half of a stream must not be lost for one byte.
        parts = iter(lambda: sys.stdin.buffer.read1(1 << 16), b"")  # type: ignore[union-attr]
        yield from split_lines(decode_text(parts, "standard input", "utf-8", "replace"), "standard input")
        return
    yield from stream_lines(options.input, keep=False)


def _get_only_sentence(sentences: Iterator[str]) -> list[str]:
    """Return the one sentence there is. Raises UsageError if there are more or none, before anything is translated."""
    texts = list(sentences)
    if len(texts) != 1:
        raise UsageError(f"--attention draws one sentence, and {len(texts)} were given")
    return texts


def _draw(opened: Run, done: Translation, path: str) -> Translation:
    """Draw the cross-attention of a translation to a file, and return the translation."""
    from clockhands.generation import draw_cross_attention
    from clockhands.report.figures import draw, make_file

    write_text(path, make_file(draw(draw_cross_attention(opened, done.source, done.text), "attention")))
    print(f"drew {path}", file=sys.stderr)
    return done
