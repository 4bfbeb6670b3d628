"""Where findings go: a folder with the page, the JSON, each figure and each table; and lines in the terminal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.errors import DataError, UsageError
from clockhands.files import lock_folder, write_bytes
from clockhands.findings import Finding, Findings
from clockhands.report.page import PAPER_WIDTHS, PREVIEW, compose, draw_figures
from clockhands.report.render import GENERATOR
from clockhands.report.tables import read_values, to_csv
from clockhands.report.text import LIGHTS, MEANINGS, describe_measured, make_slugs
from clockhands.streams import make_console, replace_controls

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE = 60.0
"""Seconds to wait for another process that writes into the same folder: a report is written in less than one."""


def write(findings: Findings, folder: str | Path, *, name: str = "index.html", title: str | None = None) -> list[Path]:
    """Write the report and return the paths, the page first.

    An earlier report in the folder is replaced, figures and tables included. Two processes write one after the other.
    Raises UsageError if ``name`` or ``findings.json`` is there and is not ours, DataError if a figure contradicts
    itself or the disk refuses, BusyError if another process writes into the folder for more than a minute.
    """
    folder = Path(folder)
    with lock_folder(folder, wait=PATIENCE):
        stale = find_earlier_files(folder, name)
        contents = _compose_files(findings, name, title)
        for path in stale - set(contents):
            (folder / path).unlink(missing_ok=True)
        return [write_bytes(folder / path, content) for path, content in contents.items()]


def _compose_files(findings: Findings, name: str, title: str | None) -> dict[str, bytes]:
    """Return every file by its path: all is made before anything is written, so a fault changes nothing."""
    from clockhands.report.figures import draw_preview, make_file  # late: Matplotlib is heavy

    drawn = draw_figures(findings)
    out = {name: compose(findings, drawn, title=title, files=True), "findings.json": findings.to_json()}
    for slug, finding in zip(make_slugs(findings), findings, strict=True):
        if slug in drawn and finding.figure is not None:
            measured = describe_measured(finding, findings.signature)
            words: dict[str, Any] = {
                "title": finding.figure.title or finding.question,
                "description": f"{finding.verdict} {measured}",
            }
            out[f"figures/{slug}.svg"] = make_file(drawn[slug], **words)
            for width in PAPER_WIDTHS:
                out[f"figures/{slug}-{width}mm.svg"] = make_file(drawn[slug], **words, width=width)
        if (values := read_values(finding)).rows:
            out[f"tables/{slug}.csv"] = to_csv(values)
    first = next((finding.figure for finding in findings if finding.figure), None)
    preview = {PREVIEW: draw_preview(first, "preview")} if first else {}
    return {path: text.encode("utf8") for path, text in out.items()} | preview


def find_earlier_files(folder: Path, name: str = "index.html") -> set[str]:
    """Return the paths of the files of an earlier report in the folder; a command asks before it measures for long.

    Raises UsageError if the page or the JSON is there and is not a report of ours, or no folder can be made there.
    """
    advice = "choose another folder, or move the file away"
    above = next(path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    if not above.is_dir():
        raise UsageError(f"no report can be written into {folder}: {above} is no folder; {advice}")
    index = folder / name
    if index.exists() and GENERATOR.encode() not in index.read_bytes()[:2000]:
        raise UsageError(f"{index} exists and is no report of Clockhands; {advice}")
    saved = folder / "findings.json"
    if not saved.exists():
        return set()
    try:
        before = Findings.load(saved)
    except DataError as fault:
        raise UsageError(f"{saved} exists and cannot be replaced, because {fault}; {advice}") from fault
    ends = (".svg", *(f"-{width}mm.svg" for width in PAPER_WIDTHS))
    slugs = make_slugs(before)
    return {f"figures/{slug}{end}" for slug in slugs for end in ends} | {f"tables/{slug}.csv" for slug in slugs}


COLOURS = {"good": "green", "warn": "yellow", "bad": "red", "info": "blue", "skip": "bright_black"}


def show(findings: Findings, console: Console | None = None) -> None:
    """Print a block for each finding; plain text where there is no terminal. Nothing in it is read as markup."""
    from rich.padding import Padding
    from rich.text import Text

    console = console or make_console()
    console.print(Text(replace_controls(findings.title), style="bold"))
    for key, fact in findings.facts.items():
        console.print(Text.assemble((f"{replace_controls(key)}: ", "bright_black"), replace_controls(fact)))
    console.print()
    skipped = [finding for finding in findings if finding.light == "skip"]
    for finding in findings:
        if finding.light != "skip":
            console.print(Text.assemble(_get_symbol(finding), (replace_controls(finding.question), "bold")))
            console.print(Padding(Text(replace_controls(finding.verdict, lines=True)), (0, 0, 0, 3)))
    for finding in skipped:
        reason = finding.verdict.replace("\n", " ")
        line = Text.assemble(_get_symbol(finding), replace_controls(f"{finding.question} {reason}"))
        line.stylize("bright_black")
        console.print(line)
    console.print()
    counts = [(kind, sum(finding.light == kind for finding in findings)) for kind in MEANINGS]
    parts = [(f"{LIGHTS[kind]} {count} {MEANINGS[kind]}", COLOURS[kind]) for kind, count in counts if count]
    console.print(Text("   ").join([Text(text, style=colour) for text, colour in parts]))


def _get_symbol(finding: Finding) -> tuple[str, str]:
    """Return the sign of a finding's light, with its style."""
    return f" {LIGHTS[finding.light]} ", f"bold {COLOURS[finding.light]}"
