"""The card of an extended model: what was done to it, what that was measured to give and to cost, how it is served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clockhands.extension.choice_findings import describe_choice
from clockhands.extension.choose import Choice
from clockhands.extension.write import CONFIG4, list_engine_lines
from clockhands.files import write_text
from clockhands.findings import Finding, Findings, Table

__all__ = ["make_engine_finding", "write_card"]


def make_engine_finding(folder: Path, *, command: str) -> Finding:
    """Return the finding that lists how each program is told the positions of a written model."""
    lines = list(list_engine_lines(folder))
    return Finding(
        "extend.engines",
        "How is it served?",
        "transformers 5 reads the folder as it is"
        + (f"; for transformers 4 put {CONFIG4} in the place of config.json." if (folder / CONFIG4).exists() else "."),
        light="info",
        table=Table.of(["program", "is told"], lines),
        method="Converted from the written configuration, as `clockhands explain --to` does.",
        command=command,
        details={"group": "What was written"},
    )


def write_card(findings: Findings, choice: Choice, source: str, folder: Path) -> Path:
    """Write ``README.md`` of an extended model: the sentences of the findings with their tables."""
    parts = [
        f"# {source}, for texts of {choice.longest:,} tokens",
        describe_choice(choice),
        f"Trained on texts of {choice.trained:,} tokens. Made by `{findings.command}`.",
    ]
    for finding in findings:
        parts += [f"## {finding.question}", finding.verdict, *_write_table(finding.table)]
    return write_text(folder / "README.md", "\n\n".join(parts) + "\n")


def _write_table(table: Table) -> Sequence[str]:
    """Return a table in Markdown; nothing for one without rows."""
    if not table.rows:
        return ()
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return ("\n".join("| " + " | ".join(_write_cell(cell) for cell in row) + " |" for row in rows),)


def _write_cell(cell: object) -> str:
    if cell is None:
        return ""
    text = f"{cell:.4g}" if isinstance(cell, float) else str(cell)
    return text.replace("\n", "⏎").replace("|", "\\|")
