"""What the trained encoder does with its positions: the findings of ``clockhands inspect`` on the run itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from clockhands.findings import Finding
from clockhands.inspection import inspect

CHOSEN = ("logits.layers", "heads.positional", "survival", "cause")
"""Those that every reader of a tour can follow; ``clockhands inspect`` has the others."""


def find_inside(run: Path) -> Iterator[Finding]:
    """Yield the findings of ``clockhands inspect`` on the run, so that both pages say the same."""
    inspected = inspect(run, command=f"clockhands inspect {run}")
    for name in CHOSEN:
        yield replace(inspected[name], details={**inspected[name].details, "group": "Inside the encoder"})
