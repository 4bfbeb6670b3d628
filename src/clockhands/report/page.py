"""Make one self-contained HTML page of findings: no script, no network, everything escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from clockhands.findings import Finding, Findings
from clockhands.report.render import render_page
from clockhands.report.tables import TableView, view_table
from clockhands.report.text import MEANINGS, make_slugs

SKIPPED = "Does not apply here"
"""The last heading of a page, over the findings that were skipped."""


@dataclass(frozen=True)
class Section:
    """A finding as the template needs it: its id on the page, its drawn figure, its table and plain details."""

    id: str
    finding: Finding
    svg: Markup | None
    table: TableView | None
    details: dict[str, Any]


def make_page(findings: Findings, *, title: str | None = None) -> str:
    """Return the whole page. Equal findings give equal bytes. Raises DataError if a figure contradicts itself."""
    return compose(findings, draw_figures(findings), title=title)


def draw_figures(findings: Findings) -> dict[str, str]:
    """Return each figure as SVG, by the id of its finding."""
    from clockhands.report.figures import draw  # late: Matplotlib is heavy

    by_id = zip(make_slugs(findings), findings, strict=True)
    return {name: draw(finding.figure, name) for name, finding in by_id if finding.figure is not None}


def compose(findings: Findings, drawn: dict[str, str], *, title: str | None = None) -> str:
    """Return the page around figures that are drawn already: ``drawn`` holds their SVG by the id of the finding."""
    sections = [
        _make_section(name, finding, drawn) for name, finding in zip(make_slugs(findings), findings, strict=True)
    ]
    counts = [(sum(finding.light == light for finding in findings), word) for light, word in MEANINGS.items()]
    return render_page(
        "findings.html",
        title or findings.title,
        style=_make_dark_style() if drawn else "",
        findings=findings,
        sections=sections,
        groups=_group_sections(sections),
        skipped=SKIPPED,
        tally=", ".join(f"{count} {word}" for count, word in counts if count),
    )


def _make_dark_style() -> str:
    """Return the style rules that change the colours of figures on a dark screen."""
    from clockhands.report.figures.palette import make_dark_css  # late, as above

    return "@media screen and (prefers-color-scheme: dark){" + make_dark_css(".plot") + "}"


def _make_section(name: str, finding: Finding, drawn: dict[str, str]) -> Section:
    """Return a finding as the template needs it; details that are no plain values are left out."""
    svg = Markup(drawn[name]) if name in drawn else None
    details = {key: value for key, value in finding.details.items() if key != "group" and _is_plain(value)}
    return Section(name, finding, svg, view_table(finding.table), details)


def _group_sections(sections: Sequence[Section]) -> dict[str, list[Section]]:
    """Return the sections by heading, ``details["group"]``, in their order; what was skipped comes last, together."""
    groups: dict[str, list[Section]] = {}
    for section in sections:
        if section.finding.light != "skip":
            groups.setdefault(str(section.finding.details.get("group", "")), []).append(section)
    skipped = [section for section in sections if section.finding.light == "skip"]
    return {**groups, SKIPPED: skipped} if skipped else groups


def _is_plain(value: object) -> bool:
    """Tell whether a value can be shown as it is: text, a number, yes or no, or nothing."""
    return value is None or isinstance(value, (str, int, float, bool))
