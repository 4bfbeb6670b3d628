"""Make one self-contained HTML page of findings: whole without its script, no network, everything escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from clockhands.findings import Figure, Finding, Findings
from clockhands.report.render import read_asset, render, render_page
from clockhands.report.tables import TableView, view_table
from clockhands.report.text import MEANINGS, make_slugs, shorten_paths, take_first_sentence, use_minus

PREVIEW = "preview.png"
"""The file beside a page that a link to it shows."""
PAPER_WIDTHS = (84, 174)
"""Widths in millimetres of the files of a figure for print: one column of a journal, and two."""
SKIPPED = "Does not apply here"
"""The last heading of a page, over the findings that were skipped."""

CARDS = 3
"""Cards at the top of a page, at most."""
SMALL_TABLE = (4, 4)
"""Rows and columns of a table that stands in the opening, at most."""
_PLAIN = (str, int, float, bool, type(None))
_LAYOUT = ("group", "opening")
"""Details of a finding that say where it stands on the page."""


@dataclass(frozen=True)
class _Section:
    """A finding as the template needs it: its id on the page, its drawn figure, its table and plain details.

    ``number`` counts the figures from the top of the page, from 1; it is 0 where there is none.
    """

    id: str
    number: int
    finding: Finding
    svg: Markup | None
    table: TableView | None
    details: dict[str, Any]


def make_page(findings: Findings, *, title: str | None = None, script: bool = True) -> str:
    """Return the whole page. Equal findings give equal bytes. Raises DataError if a figure contradicts itself.

    ``script``: whether figures have buttons and show the values that a reader points at; all else is there without.
    """
    return compose(findings, draw_figures(findings), title=title, script=script)


def draw_figures(findings: Findings) -> dict[str, str]:
    """Return each figure as SVG, by the id of its finding."""
    from clockhands.report.figures import draw  # late: Matplotlib is heavy

    return {
        name: draw(finding.figure, name, alternative=use_minus(finding.verdict))
        for name, finding in zip(make_slugs(findings), findings, strict=True)
        if finding.figure is not None and _is_worth_drawing(finding.figure)
    }


def _is_worth_drawing(figure: Figure) -> bool:
    """Tell whether a figure shows more than one number: two points of a line, or two different values.

    Without a panel, with one point a line, or with one value everywhere there is nothing that the verdict does not say.
    """
    marks = [mark for panel in figure.panels for mark in panel.marks if mark.emphasis != "reference"]
    # Of marks that stand alone the numbers are those of y, or of x where y holds names.
    alone = {
        value
        for mark in marks
        if mark.kind in ("points", "bars", "stack")
        for value in (mark.x if any(isinstance(name, str) for name in mark.y) else mark.y)
        if value is not None
    }
    lines = [max(len(mark.y), len(mark.low)) for mark in marks if mark.kind in ("line", "band")]
    return len(alone) > 1 or max(lines, default=0) > 1 or any(mark.z for mark in marks)


def compose(
    findings: Findings,
    drawn: dict[str, str],
    *,
    title: str | None = None,
    script: bool = True,
    files: bool = False,
) -> str:
    """Return the page around figures that are drawn already: ``drawn`` holds them by the id of the finding.

    ``script`` as ``make_page``. ``files``: whether the files that ``write`` makes are beside the page, to be linked.
    """
    findings = _shorten_all_paths(findings)
    named = list(zip(make_slugs(findings), findings, strict=True))
    sections = _number_figures([_make_section(name, finding, drawn) for name, finding in named])
    opening = next((finding for finding in findings if finding.details.get("opening")), None)
    # A fact that stands in the opening, or is the verdict of the finding there, is not told again.
    opened = "" if opening is None else f"{opening.details['opening']}\n{opening.verdict}"
    counts = [(sum(finding.light == light for finding in findings), word) for light, word in MEANINGS.items()]
    return render_page(
        "findings.html",
        shorten_paths(title or findings.title),
        script="figures.js" if script and drawn else "",
        style=_make_figure_style() if drawn else "",
        files=files,
        widths=PAPER_WIDTHS,
        preview=PREVIEW if files and drawn else "",
        findings=findings,
        facts={key: fact for key, fact in findings.facts.items() if not (isinstance(fact, str) and fact in opened)},
        opening=opening,
        small_table=opening is not None
        and 0 < len(opening.table.rows) <= SMALL_TABLE[0]
        and len(opening.table.columns) <= SMALL_TABLE[1],
        cards=_choose_cards(findings, named),
        sections=sections,
        groups=_group_sections(sections),
        skipped=SKIPPED,
        tally=", ".join(f"{count} {word}" for count, word in counts if count),
    )


def _choose_cards(findings: Findings, named: Sequence[tuple[str, Finding]]) -> list[dict[str, Any]]:
    """Return the findings that the command named to open its page, or else the first that are bad or to watch."""
    shown = [(name, finding) for name, finding in named if not finding.details.get("opening")]
    chosen = [entry for name in findings.opening for entry in shown if entry[1].name == name]
    if not findings.opening:
        chosen = [entry for light in ("bad", "warn") for entry in shown if entry[1].light == light]
    return [
        {"id": name, "finding": finding, "sentence": take_first_sentence(finding.verdict)}
        for name, finding in [entry for entry in chosen if entry[1].light != "skip"][:CARDS]
    ]


def _make_figure_style() -> str:
    """Return the style rules of figures: of what stands around them, and of their colours on a dark screen."""
    from clockhands.report.figures.palette import make_dark_css  # late, as above

    dark = make_dark_css(".plot")
    return f"{read_asset('figures.css')}@media screen and (prefers-color-scheme: dark){{{dark}}}"


def _number_figures(sections: Sequence[_Section]) -> list[_Section]:
    """Return the sections with the numbers of their figures, counted in the order in which a reader meets them."""
    in_order = [section.id for group in _group_sections(sections).values() for section in group if section.svg]
    numbers = {name: number for number, name in enumerate(in_order, 1)}
    return [replace(section, number=numbers.get(section.id, 0)) for section in sections]


def _make_section(name: str, finding: Finding, drawn: dict[str, str]) -> _Section:
    """Return a finding as the template needs it; details that are no plain values are left out."""
    svg = Markup(drawn[name]) if name in drawn else None
    details = {key: value for key, value in finding.details.items() if key not in _LAYOUT and isinstance(value, _PLAIN)}
    return _Section(name, 0, finding, svg, view_table(finding.table), details)


def _group_sections(sections: Sequence[_Section]) -> dict[str, list[_Section]]:
    """Return the sections by heading, ``details["group"]``, in their order; what was skipped comes last, together."""
    groups: dict[str, list[_Section]] = {}
    for section in sections:
        if section.finding.light != "skip":
            groups.setdefault(str(section.finding.details.get("group", "")), []).append(section)
    skipped = [section for section in sections if section.finding.light == "skip"]
    return {**groups, SKIPPED: skipped} if skipped else groups


def _shorten_all_paths(findings: Findings) -> Findings:
    """Return the findings without absolute paths in what a page tells; tables and figures, which hold text, stay."""

    def shorten(value: Any) -> Any:
        return shorten_paths(value) if isinstance(value, str) else value

    names = ("question", "method", "source", "command")
    items = tuple(
        replace(
            item,
            details={key: shorten(value) for key, value in item.details.items()},
            verdict=use_minus(shorten(item.verdict)),
            **{name: shorten(getattr(item, name)) for name in names},
        )
        for item in findings
    )
    return replace(
        findings,
        items=items,
        facts={key: shorten(value) for key, value in findings.facts.items()},
        signature=shorten(findings.signature),
        command=shorten(findings.command),
    )


def make_notebook_frame(findings: Findings) -> str:
    """Return an ``<iframe>`` that carries the whole page; scripts are not allowed in it."""
    return render("notebook.html", title=findings.title, page=make_page(findings, script=False))
