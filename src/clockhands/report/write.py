"""A folder of findings: the page, the JSON, each figure and each table as a file of its own."""

from __future__ import annotations

from pathlib import Path

from clockhands.errors import DataError, UsageError
from clockhands.files import write_text
from clockhands.findings import Findings
from clockhands.locking import lock_folder
from clockhands.report.page import compose, draw_figures
from clockhands.report.render import GENERATOR
from clockhands.report.tables import to_csv
from clockhands.report.text import make_slugs

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
        stale = _find_earlier_files(folder, name)
        contents = _compose_files(findings, name, title)
        for path in stale - set(contents):
            (folder / path).unlink(missing_ok=True)
        return [write_text(folder / path, text) for path, text in contents.items()]


def _compose_files(findings: Findings, name: str, title: str | None) -> dict[str, str]:
    """Return the text of every file by its path: all is made before anything is written, so a fault changes nothing."""
    from clockhands.report.figures import make_file  # late: Matplotlib is heavy

    drawn = draw_figures(findings)
    out = {name: compose(findings, drawn, title=title), "findings.json": findings.to_json()}
    for slug, finding in zip(make_slugs(findings), findings, strict=True):
        if slug in drawn:
            out[f"figures/{slug}.svg"] = make_file(drawn[slug])
        if finding.table.rows:
            out[f"tables/{slug}.csv"] = to_csv(finding.table)
    return out


def _find_earlier_files(folder: Path, name: str) -> set[str]:
    """Return the paths of the files of an earlier report in the folder.

    Raises UsageError if the page or the JSON is there and is not a report of ours.
    """
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
    return {
        f"{kind}/{slug}.{end}" for slug in make_slugs(before) for kind, end in (("figures", "svg"), ("tables", "csv"))
    }
