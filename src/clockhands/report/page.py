"""Findings -> one self-contained HTML page: no script, no network, everything escaped."""

from __future__ import annotations

from importlib.resources import files
from typing import TypeAlias

from clockhands.findings import Finding, Findings
from clockhands.report.section import light, section
from clockhands.report.style import dark_css
from clockhands.report.text import MEANINGS, escape, quantity, slugs

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
GENERATOR = '<meta name="generator" content="Clockhands">'
_CLOCK = (
    '<svg viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="1.5" '
    'stroke-linecap="round" aria-hidden="true">'
    '<circle cx="10" cy="10" r="8.5"/><path d="M10 10V4.2M10 10l4 2.6M10 10l-2.6 1.4"/></svg>'
)
Entry: TypeAlias = tuple[str, Finding]


def page(findings: Findings, *, title: str | None = None) -> str:
    """The whole page. Equal findings give equal bytes. Raises DataError if a figure contradicts itself."""
    return compose(findings, drawings(findings), title=title)


def drawings(findings: Findings) -> dict[str, str]:
    """Each figure as SVG, by the id of its finding."""
    from clockhands.report.draw import draw  # late: Matplotlib is heavy

    named = zip(slugs(findings), findings, strict=True)
    return {name: draw(finding.figure, name) for name, finding in named if finding.figure is not None}


def compose(findings: Findings, drawn: dict[str, str], *, title: str | None = None) -> str:
    """The page around figures that are drawn already."""
    entries = list(zip(slugs(findings), findings, strict=True))
    heading = title or findings.title
    css = files("clockhands.report").joinpath("page.css").read_text(encoding="utf8")
    dark = "@media screen and (prefers-color-scheme: dark){" + dark_css(".plot") + "}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'{GENERATOR}\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(heading)}</title>\n<style>\n{css}{dark}\n</style>\n"
        '</head>\n<body>\n<div class="sheet">\n'
        f"{_header(findings, heading, entries)}\n{_contents(entries)}\n{_main(entries, drawn)}\n{_footer(findings)}\n"
        "</div>\n</body>\n</html>\n"
    )


def _header(findings: Findings, heading: str, entries: list[Entry]) -> str:
    facts = "".join(f"<dt>{escape(key)}</dt><dd>{escape(quantity(fact))}</dd>" for key, fact in findings.facts.items())
    lights = "".join(f"<li>{_lamp(name, finding)}</li>" for name, finding in entries)
    counts = [(sum(item.light == key for item in findings), word) for key, word in MEANINGS.items()]
    tally = ", ".join(f"{count} {word}" for count, word in counts if count)
    return (
        f'<header>\n<p class="brand">{_CLOCK} Clockhands</p>\n<h1>{escape(heading)}</h1>\n'
        + (f'<dl class="facts">{facts}</dl>\n' if facts else "")
        + f'<ul class="lights" aria-label="Verdicts">{lights}</ul>\n<p class="tally">{tally}</p>\n</header>'
    )


def _lamp(name: str, finding: Finding) -> str:
    text = f"{finding.question} {finding.verdict}"
    return light(finding.light, tag=f'a href="#{name}"', words=f"{MEANINGS[finding.light]}: {text}")


def _contents(entries: list[Entry]) -> str:
    parts = []
    for group, members in grouped(entries).items():
        rows = "".join(
            f'<li><a href="#{name}">{light(finding.light)}<span class="ask">{escape(finding.question)}</span>'
            f"<b>{escape(quantity(finding.value, finding.unit)) if finding.value is not None else ''}</b></a></li>"
            for name, finding in members
        )
        parts.append(f"<h2>{escape(group or 'Contents')}</h2><ol>{rows}</ol>")
    return f'<nav class="contents" aria-label="Contents">{"".join(parts)}</nav>'


def _main(entries: list[Entry], drawn: dict[str, str]) -> str:
    parts = []
    for group, members in grouped(entries).items():
        if group:
            parts.append(f'<h2 class="group">{escape(group)}</h2>')
        if group == SKIPPED:
            parts.append(_skipped(members))
        else:
            parts += [section(name, finding, drawn.get(name)) for name, finding in members]
    return "<main>\n" + "\n".join(parts) + "\n</main>"


SKIPPED = "Does not apply here"


def grouped(entries: list[Entry]) -> dict[str, list[Entry]]:
    """By ``details["group"]`` in order of first appearance; what was skipped comes last, together."""
    groups: dict[str, list[Entry]] = {}
    for name, finding in entries:
        if finding.light != "skip":
            groups.setdefault(str(finding.details.get("group", "")), []).append((name, finding))
    skipped = [entry for entry in entries if entry[1].light == "skip"]
    return {**groups, SKIPPED: skipped} if skipped else groups


def _skipped(members: list[Entry]) -> str:
    rows = "".join(
        f'<li id="{name}">{light("skip")}<div><b>{escape(finding.question)}</b> '
        f'<span class="why">{escape(finding.verdict)}</span></div></li>'
        for name, finding in members
    )
    return f'<div class="skipped"><ul>{rows}</ul></div>'


def _footer(findings: Findings) -> str:
    lines = []
    if findings.signature:
        lines.append(f"<p>Signature of every number on this page: <code>{escape(findings.signature)}</code></p>")
    if findings.command:
        lines.append(f"<p>The whole page again:</p><pre>{escape(findings.command, lines=True)}</pre>")
    return f"<footer>{''.join(lines)}</footer>" if lines else ""
