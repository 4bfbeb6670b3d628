"""The built-in studies: questions people ask, each a plan in this folder."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

from clockhands.comparison import Plan, read_plan
from clockhands.errors import UsageError, unknown

FOLDER = Path(__file__).parent
ORDER = (
    "scale", "sum-or-concatenate", "does-adding-destroy-the-word", "how-wide", "why-sine-and-cosine",
    "why-not-the-index", "do-positions-survive", "order-at-all", "the-schemes", "how-far",
)  # fmt: skip
"""As a reader should meet them."""
SECONDS_A_TRIAL = 6
"""On one core of an ordinary laptop, for the list alone; ``--dry-run`` measures."""


def path_of(name: str) -> Path:
    """The plan of a study. Raises UsageError with the nearest name."""
    if name not in ORDER:
        raise UsageError(unknown("study", name, ORDER))
    return FOLDER / f"{name}.toml"


def open_study(name: str, seeds: int | None = None) -> Plan:
    """A study as a plan, with another number of seeds if asked. Raises UsageError, ConfigError."""
    return read_plan(path_of(name), {} if seeds is None else {"seeds": seeds})


def title_of(name: str) -> tuple[str, int]:
    """Its question, and its trials, read without checking the plan."""
    given = tomllib.loads(path_of(name).read_text("utf8"))
    grid = given.get("vary", {}).values()
    variants = len(given.get("variant", ())) + (math.prod(map(len, grid)) if grid else 0)
    return given["title"], given["seeds"] * variants
