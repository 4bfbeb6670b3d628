"""One finding as a section of the page: question, verdict with its numbers, figure, folded table and method."""

from __future__ import annotations

import csv
import io
from urllib.parse import quote

from clockhands.findings import Finding, Light, Scalar, Table
from clockhands.report.text import LIGHTS, MEANINGS, escape, number, prose, quantity, span

SHOWN_ROWS = 200
LARGEST_CSV = 24_000  # characters of a table that the page itself carries as a download


def light(kind: Light, *, tag: str = "span", words: str = "") -> str:
    """A light is a colour and a symbol, and says in words what it means."""
    label = escape(words or MEANINGS[kind])
    closing = tag.split()[0]
    role = "" if closing == "a" else ' role="img"'
    return f'<{tag} class="light {kind}"{role} aria-label="{label}" title="{label}">{LIGHTS[kind]}</{closing}>'


def section(name: str, finding: Finding, svg: str | None) -> str:
    """The finding under the id ``name``, with its figure already drawn."""
    parts = [
        f'<section class="finding" id="{name}">',
        f"<h3>{escape(finding.question)}</h3>",
        '<div class="answer">' + numbers(finding),
        f'<p class="verdict">{light(finding.light)}<span>{_verdict(finding)}</span></p></div>',
        _figure(finding, svg),
        _table(name, finding.table),
        _method(finding),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _verdict(finding: Finding) -> str:
    """The sentence; a number and its per cent never part."""
    return escape(finding.verdict, lines=True).replace(" %", "&nbsp;%")


def numbers(finding: Finding) -> str:
    """The value, large, with its interval and what it is compared with, each by its name."""
    if finding.value is None:
        return ""
    if isinstance(finding.value, str):
        value = f'<span class="value words">{escape(quantity(finding.value, finding.unit))}</span>'
    else:
        unit = f"&nbsp;<small>{escape(finding.unit)}</small>" if finding.unit else ""
        value = f'<span class="value">{escape(number(finding.value))}{unit}</span>'
    beside = [span(finding.interval)] if finding.interval else []
    for reference in finding.references:
        beside.append(f"{reference.name} {number(reference.value)} {span(reference.interval)}".strip())
    lines = "".join(f'<span class="beside">{escape(line)}</span>' for line in beside)
    return f'<p class="numbers">{value}{lines}</p>'


def _figure(finding: Finding, svg: str | None) -> str:
    if finding.figure is None or svg is None:
        return ""
    kind = {1: " one"}.get(finding.figure.columns, " fixed" if finding.figure.columns >= 5 else "")
    caption = f"<figcaption>{escape(finding.figure.caption)}</figcaption>" if finding.figure.caption else ""
    return f'<figure><div class="plot{kind}" tabindex="0">{svg}</div>{caption}</figure>'


def to_csv(table: Table) -> str:
    """RFC 4180, numbers in full precision."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue().encode("utf8", "replace").decode("utf8")


def _table(name: str, table: Table) -> str:
    if not table.rows:
        return ""
    numeric = [all(_is_number(row[index]) for row in table.rows) for index in range(len(table.columns))]
    head = "".join(f"<th{_n(flag)}>{escape(column)}</th>" for column, flag in zip(table.columns, numeric, strict=True))
    body = "".join(_row(row, numeric) for row in table.rows[:SHOWN_ROWS])
    count = "1 row" if len(table.rows) == 1 else f"{len(table.rows)} rows"
    return (
        f"<details><summary>The numbers <small>({count})</small></summary>"
        f'<div class="fold"><div class="table" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f'<tbody>{body}</tbody></table></div><p class="under">{_download(name, table)}</p></div></details>'
    )


def _row(row: tuple[Scalar, ...], numeric: list[bool]) -> str:
    cells = zip(row, numeric, strict=True)
    return "<tr>" + "".join(f"<td{_n(flag)}>{escape(number(cell))}</td>" for cell, flag in cells) + "</tr>"


def _n(numeric: bool) -> str:
    return ' class="n"' if numeric else ""


def _is_number(cell: Scalar) -> bool:
    return cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool))


def _download(name: str, table: Table) -> str:
    text = to_csv(table)
    if len(text) > LARGEST_CSV:
        shown = min(SHOWN_ROWS, len(table.rows))
        return (
            f"The first {shown} of {len(table.rows)} rows; all are in <code>tables/{name}.csv</code> beside this page."
        )
    data = quote(text, safe=" ,.-_:;()/+=*!'")
    data = data.replace("'", "%27").replace(" ", "%20")
    first = f"The first {SHOWN_ROWS} rows. " if len(table.rows) > SHOWN_ROWS else ""
    return f'{first}<a download="{name}.csv" href="data:text/csv;charset=utf-8,{data}">All as CSV</a>'


def _method(finding: Finding) -> str:
    facts = {key: value for key, value in finding.details.items() if key != "group" and _is_plain(value)}
    rows = [("source", prose(finding.source))] if finding.source else []
    rows += [(key, escape(number(value))) for key, value in facts.items()]
    listed = "".join(f"<dt>{escape(key)}</dt><dd>{value}</dd>" for key, value in rows)
    body = prose(finding.method) + (f"<dl>{listed}</dl>" if listed else "")
    if finding.command:
        body += f"<p>Measured again by</p><pre>{escape(finding.command, lines=True)}</pre>"
    return f'<details><summary>How it was measured</summary><div class="fold">{body}</div></details>' if body else ""


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))
