"""``clockhands translate``: sentences, a file or standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from clockhands.cli.common import DeviceOptions, Searching, check_file, import_engine, prepare
from clockhands.cli.flags import POSITIONAL
from clockhands.errors import ClockhandsError, UsageError
from clockhands.files import PART, open_growing, write_text
from clockhands.streams import get_raw_output

EXAMPLES = (
    'clockhands translate runs/tour "zweihundertdrei"',
    "clockhands translate runs/mine --input test.de --beam 5 --output test.hyp",
    "clockhands translate runs/mine --json < test.de",
    'clockhands translate runs/tour "zweihundertdrei" --attention attention.svg',
)


@dataclass(frozen=True, kw_only=True)
class Options(Searching, DeviceOptions):
    """What to translate, and where to.

    Args:
        run: the folder of a trained run
        text: the sentences to translate; without any, --input or standard input is read
        input: translate a file with one sentence a line (.gz too)
        output: write the translations to FILE instead of standard output; until the last one is done, those that are
            done are in FILE.part
        overwrite: replace the files of --output and --attention if they exist
        json: write JSON Lines with source, translation and score
        attention: also draw to which source tokens each target token attends, to an SVG file
        batch: translate N sentences at a time (default: 64)
    """

    run: Annotated[str, POSITIONAL]
    text: Annotated[tuple[str, ...], POSITIONAL] = ()
    input: Annotated[str | None, "FILE"] = None
    output: Annotated[str | None, "FILE"] = None
    overwrite: bool = False
    json: bool = False
    attention: Annotated[str | None, "SVG"] = None
    batch: Annotated[int | None, "N"] = None


def run(options: Options) -> int:
    """Translate sentences, a file or standard input, and print or write the translations."""
    if options.text and options.input:
        raise UsageError("give sentences or --input, not both")
    check_file("--output", options.output, overwrite=options.overwrite)
    check_file("--attention", options.attention, overwrite=options.overwrite, suffix=".svg")
    files: dict[Path, str] = {}
    for flag in ("input", "output", "attention"):
        if path := getattr(options, flag):
            other = files.setdefault(Path(path).resolve(), flag)
            if other != flag:
                raise UsageError(f"--{other} and --{flag} both name {path}; give each its own file")
    part = f"{options.output}{PART}"
    if options.output and Path(part).exists() and not options.overwrite:
        raise UsageError(
            f"{part} exists (what an interrupted translation left); name another file, or pass --overwrite"
        )
    prepare(options)
    import_engine()
    from clockhands.generation import translate
    from clockhands.runs import open_run

    # Drawing needs the whole run, and so does another device; a path is opened in the quickest way.
    whole = options.attention is not None or options.device is not None
    opened: Any = open_run(options.run, device=options.device) if whole else options.run
    sentences: Iterable[str] = _read_sentences(options)
    if options.attention:
        sentences = list(sentences)
        if len(sentences) != 1:
            raise UsageError(f"--attention draws one sentence, and {len(sentences)} were given")
    done = translate(opened, sentences, options.make_search(options.batch))
    if options.attention:
        from clockhands.generation import draw_cross_attention
        from clockhands.report.figures import draw, make_file

        translation = next(done)
        done = iter([translation])
        figure = draw_cross_attention(opened, translation.source, translation.text)
        write_text(options.attention, make_file(draw(figure, "attention")))
        print(f"drew {options.attention}", file=sys.stderr)
    lines = (
        json.dumps({"source": t.source, "translation": t.text, "score": round(t.score, 6)}, ensure_ascii=False)
        if options.json
        else t.text
        for t in done
    )
    if options.output:
        total = 0  # of a pipe, and of a file that cannot be read to its end
        with suppress(ClockhandsError):
            total = sum(1 for _ in _read_sentences(options)) if options.text or options.input else 0
        _write(lines, options.output, total)
        return 0
    for line in lines:
        print(line, flush=True, file=get_raw_output())
    return 0


def _write(lines: Iterator[str], path: str, total: int) -> None:
    """Write each line as soon as it is made. If that ends early, the error says in which file the lines so far are.

    ``total``: how many there will be, of which progress is shown; 0 where nobody knows.
    """
    from clockhands.progress import ProgressCounter

    count = 0
    try:
        with open_growing(path) as write, ProgressCounter() as progress:
            for line in lines:
                write(line)
                count += 1
                if total:
                    progress("sentences", count, total)
    except (ClockhandsError, KeyboardInterrupt) as fault:
        if not count:
            raise
        stopped = isinstance(fault, KeyboardInterrupt)
        said = ClockhandsError(
            f"{'stopped' if stopped else fault}; the first {count:,} translations are in {path}{PART}"
        )
        said.exit_code = 130 if stopped else getattr(fault, "exit_code", 1)
        raise said from fault


def _read_sentences(options: Options) -> Iterator[str]:
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
