"""The verdicts in the terminal: a symbol, the question, the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clockhands.findings import Finding, Findings
from clockhands.report.text import LIGHTS, MEANINGS
from clockhands.streams import make_console, replace_controls

if TYPE_CHECKING:
    from rich.console import Console

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
        line = Text.assemble(
            _get_symbol(finding), replace_controls(finding.question), " ", replace_controls(finding.verdict)
        )
        line.stylize("bright_black")
        console.print(line)
    console.print()
    counts = [(kind, sum(finding.light == kind for finding in findings)) for kind in MEANINGS]
    parts = [(f"{LIGHTS[kind]} {count} {MEANINGS[kind]}", COLOURS[kind]) for kind, count in counts if count]
    console.print(Text("   ").join([Text(text, style=colour) for text, colour in parts]))


def _get_symbol(finding: Finding) -> tuple[str, str]:
    """Return the sign of a finding's light, with its style."""
    return f" {LIGHTS[finding.light]} ", f"bold {COLOURS[finding.light]}"
