"""Make one self-contained HTML page of findings: whole without its script, no network, everything escaped."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from clockhands.findings import Figure, Findings, Scalar
from clockhands.report.render import make_policy, read_asset, render
from clockhands.report.tables import view_table
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
    alone: set[Scalar] = set()
    for mark in (mark for panel in figure.panels for mark in panel.marks if mark.emphasis != "reference"):
        if mark.z or (mark.kind in ("line", "band") and max(len(mark.y), len(mark.low)) > 1):
            return True
        if mark.kind in ("points", "bars", "stack"):
            # Of marks that stand alone the numbers are those of y, or of x where y holds names.
            alone.update(mark.x if any(isinstance(name, str) for name in mark.y) else mark.y)
    return len(alone - {None}) > 1


def compose(
    findings: Findings,
    drawn: dict[str, str],
    *,
    title: str | None = None,
    script: bool = True,
    files: bool = False,
) -> str:
    """Return the page around figures that are drawn already: ``drawn`` holds them by the id of the finding.

    ``script``: as in ``make_page``. ``files``: whether the files that ``write`` makes are beside the page, and linked.
    """
    findings = _shorten_all_paths(findings)
    sections, groups = _arrange_sections(findings, drawn)
    opening = next((finding for finding in findings if finding.details.get("opening")), None)
    # A fact that stands in the opening, or is the verdict of the finding there, is not told again.
    opened = "" if opening is None else f"{opening.details['opening']}\n{opening.verdict}"
    counts = [(sum(finding.light == light for finding in findings), word) for light, word in MEANINGS.items()]
    style = read_asset("style.css")
    if drawn:
        from clockhands.report.figures.palette import make_dark_css  # late, as above

        style += read_asset("figures.css")
        style += f"@media screen and (prefers-color-scheme: dark){{{make_dark_css('.plot')}}}"
    program = read_asset("figures.js").replace("</", "<\\/") if script and drawn else ""
    return render(
        "findings.html",
        title=shorten_paths(title or findings.title),
        policy=make_policy(program),
        style=Markup(style),
        script=Markup(program),
        files=files,
        widths=PAPER_WIDTHS,
        preview=PREVIEW if files and drawn else "",
        findings=findings,
        facts={key: fact for key, fact in findings.facts.items() if not (isinstance(fact, str) and fact in opened)},
        opening=opening,
        small_table=opening is not None
        and 0 < len(opening.table.rows) <= SMALL_TABLE[0]
        and len(opening.table.columns) <= SMALL_TABLE[1],
        cards=_choose_cards(findings, sections),
        sections=sections,
        groups=groups,
        skipped=SKIPPED,
        tally=", ".join(f"{count} {word}" for count, word in counts if count),
    )


def _arrange_sections(
    findings: Findings, drawn: dict[str, str]
) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return what the template needs of each finding, and the same by heading, figures numbered as a reader meets them.

    Sections stand under their headings, in their order; what was skipped comes last, together.
    """
    sections: list[dict[str, Any]] = [
        {
            "id": name,
            "finding": finding,
            "svg": Markup(drawn[name]) if name in drawn else None,
            "table": view_table(finding.table),
            "details": {k: v for k, v in finding.details.items() if k not in _LAYOUT and isinstance(v, _PLAIN)},
        }
        for name, finding in zip(make_slugs(findings), findings, strict=True)
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for section in sorted(sections, key=lambda section: section["finding"].light == "skip"):
        finding = section["finding"]
        heading = SKIPPED if finding.light == "skip" else str(finding.details.get("group", ""))
        groups.setdefault(heading, []).append(section)
    numbers = itertools.count(1)
    for section in itertools.chain.from_iterable(groups.values()):
        section["number"] = next(numbers) if section["svg"] else 0
    return sections, groups


def _choose_cards(findings: Findings, sections: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the findings that the command named to open its page, or else the first that are bad or to watch."""
    shown = [section for section in sections if not section["finding"].details.get("opening")]
    if findings.opening:
        chosen = [section for name in findings.opening for section in shown if section["finding"].name == name]
        chosen = [section for section in chosen if section["finding"].light != "skip"]
    else:
        chosen = [section for light in ("bad", "warn") for section in shown if section["finding"].light == light]
    return [{**section, "sentence": take_first_sentence(section["finding"].verdict)} for section in chosen[:CARDS]]


def _shorten_all_paths(findings: Findings) -> Findings:
    """Return the findings as a page tells them: without absolute paths, and with true minus signs in verdicts.

    Tables and figures, which hold text, stay.
    """

    def shorten(value: Any) -> Any:
        return shorten_paths(value) if isinstance(value, str) else value

    items = tuple(
        replace(
            item,
            question=shorten(item.question),
            verdict=use_minus(shorten(item.verdict)),
            method=shorten(item.method),
            source=shorten(item.source),
            command=shorten(item.command),
            details={key: shorten(value) for key, value in item.details.items()},
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
