"""Run the tutorials, and write what each of their blocks prints behind it.

    python docs/make_tutorials.py [NAME ...]        # all of docs/tutorials, or those that are named

The blocks of a page run in their order, in one empty folder: Python in one namespace, commands after ``$``. The tour
trains for minutes, the other pages for seconds. tests/test_tutorials.py runs the same and compares.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "tutorials"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", flags=re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"clockhands[ .](compare|evaluate|inspect|tour)\b")
"""Blocks whose numbers were measured, and are others on another processor."""
NUMBER = re.compile(r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+| × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?")
TIME = re.compile(r"# (?:seconds|minutes|hours)")
BUSY = re.compile(r"^\(as busy as this machine is now.*?\)$", flags=re.MULTILINE | re.DOTALL)
"""What ``--dry-run`` adds where other work shares the processor."""

Command = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Block:
    """What runs, in which language, and the output that the page has behind it."""

    language: str
    code: str
    output: str


def read_blocks(text: str) -> list[Block]:
    """Return the blocks of a page that run, in their order."""
    return [Block(language, code, output or "") for language, code, output in BLOCK.findall(text)]


def run_blocks(blocks: Sequence[Block], command: Command) -> Iterator[str]:
    """Run blocks in their order, in the working folder; yield what each prints. ``command`` is given words to run.

    Raises RuntimeError with a command that fails.
    """
    names: dict[str, object] = {"__name__": "tutorial"}
    os.environ["COLUMNS"] = "80"
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if block.language == "python":
                exec(compile(block.code, "a tutorial", "exec"), names)
            else:
                for line in block.code.splitlines():
                    _run_line(line, command)
        yield "".join(f"{line.rstrip()}\n" for line in printed.getvalue().strip("\n").splitlines())


def _run_line(line: str, command: Command) -> None:
    program, *words = shlex.split(line.removeprefix("$ "))
    if program != "clockhands" or command(words) != 0:
        raise RuntimeError(f"a tutorial says {line!r}, which fails")


def write_outputs(text: str, outputs: Sequence[str]) -> str:
    """Return a page with these outputs behind its blocks; no output where a block prints nothing."""
    left = iter(outputs)

    def rewrite(match: re.Match[str]) -> str:
        output = next(left)
        code = f"```{match[1]}\n{match[2]}```"
        return f"{code}\n\n```text\n{output}```" if output else code

    return BLOCK.sub(rewrite, text)


def make_comparable(block: Block, output: str) -> str:
    """Return an output as it is compared: spaces count as one, and a measured number is ``#``, whatever it is.

    >>> make_comparable(Block("console", "$ clockhands compare --dry-run", ""), "about 7 seconds  with 1 worker")
    'about # seconds with # worker'
    """
    if MEASURED.search(block.code):
        output = TIME.sub("# seconds", NUMBER.sub("#", BUSY.sub("", output)))
    return " ".join(output.split())


def main() -> int:
    """Run the pages that are named, or all, and write their outputs."""
    from clockhands.cli import main as clockhands

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names or sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
    for name in names:
        page = FOLDER / f"{name}.md"
        text = page.read_text("utf8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            outputs = [*run_blocks(read_blocks(text), clockhands)]
        page.write_text(write_outputs(text, outputs), "utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
