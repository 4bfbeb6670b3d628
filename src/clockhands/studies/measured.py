"""What the studies have measured, as it came with the package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PACKAGED", "MeasuredAnswer", "read_answers"]

PACKAGED = Path(__file__).parent / "answers.json"
"""Written by docs/tools/answers/generate.py from the committed results."""


@dataclass(frozen=True)
class MeasuredAnswer:
    """The answer of the study ``name``, with the numbers that were measured."""

    name: str
    question: str
    answer: str

    @property
    def command(self) -> str:
        """What measures it again."""
        return f"clockhands study {self.name}"


def read_answers() -> tuple[MeasuredAnswer, ...]:
    """Return the answers of all studies that were measured, in the order in which a reader should meet them."""
    return tuple(MeasuredAnswer(**answer) for answer in json.loads(PACKAGED.read_text("utf8")))
