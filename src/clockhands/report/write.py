"""A folder of findings: the page, the JSON, each figure and each table as a file of its own."""

from __future__ import annotations

from pathlib import Path

from clockhands.errors import DataError, UsageError
from clockhands.files import write_text
from clockhands.findings import Findings
from clockhands.locking import lock_folder
from clockhands.report.page import compose, drawings
from clockhands.report.render import GENERATOR
from clockhands.report.tables import to_csv
from clockhands.report.text import slugs

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
        stale = _earlier(folder, name)
        contents = _contents(findings, name, title)
        for path in stale - set(contents):
            (folder / path).unlink(missing_ok=True)
        return [write_text(folder / path, text) for path, text in contents.items()]


def _contents(findings: Findings, name: str, title: str | None) -> dict[str, str]:
    """Everything is drawn before anything is written, so that a fault leaves the folder as it was."""
    from clockhands.report.figures import as_file  # late: Matplotlib is heavy

    drawn = drawings(findings)
    out = {name: compose(findings, drawn, title=title), "findings.json": findings.to_json()}
    for slug, finding in zip(slugs(findings), findings, strict=True):
        if slug in drawn:
            out[f"figures/{slug}.svg"] = as_file(drawn[slug])
        if finding.table.rows:
            out[f"tables/{slug}.csv"] = to_csv(finding.table)
    return out


def _earlier(folder: Path, name: str) -> set[str]:
    """The files of the report that stands there now. Raises UsageError if something else has our names."""
    advice = "choose another folder, or move the file away"
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
    return {f"{kind}/{slug}.{end}" for slug in slugs(before) for kind, end in (("figures", "svg"), ("tables", "csv"))}
