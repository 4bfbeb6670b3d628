"""The verdicts in the terminal: a symbol, the question, the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clockhands.findings import Finding, Findings
from clockhands.report.text import LIGHTS, MEANINGS, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLOURS = {"good": "green", "warn": "yellow", "bad": "red", "info": "blue", "skip": "bright_black"}


def show(findings: Findings, console: Console | None = None) -> None:
    """Print one block a finding; plain text where there is no terminal. Nothing in it is read as markup."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = console or Console()
    console.print(Text(visible(findings.title), style="bold"))
    for key, fact in findings.facts.items():
        console.print(Text.assemble((f"{visible(key)}: ", "bright_black"), visible(fact)))
    console.print()
    skipped = [finding for finding in findings if finding.light == "skip"]
    for finding in findings:
        if finding.light != "skip":
            console.print(Text.assemble(_symbol(finding), (visible(finding.question), "bold")))
            console.print(Padding(Text(visible(finding.verdict, lines=True)), (0, 0, 0, 3)))
    for finding in skipped:
        line = Text.assemble(_symbol(finding), visible(finding.question), " ", visible(finding.verdict))
        line.stylize("bright_black")
        console.print(line)
    console.print()
    console.print(_tally(findings))


def _symbol(finding: Finding) -> tuple[str, str]:
    return f" {LIGHTS[finding.light]} ", f"bold {COLOURS[finding.light]}"


def _tally(findings: Findings) -> Text:
    from rich.text import Text

    counts = {kind: sum(finding.light == kind for finding in findings) for kind in MEANINGS}
    parts = [(f"{LIGHTS[kind]} {count} {MEANINGS[kind]}", COLOURS[kind]) for kind, count in counts.items() if count]
    return Text("   ").join([Text(text, style=colour) for text, colour in parts])
