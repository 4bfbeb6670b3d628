"""Faults and limits that have been traced: one entry of ``known.toml`` each."""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, cast

from transformers import __version__


@dataclass(frozen=True)
class Known:
    """Why these checks fail for these architectures. ``verdict`` is set where the fault is a declared limit."""

    name: str
    types: tuple[str, ...]
    checks: tuple[str, ...]
    cause: str
    where: str = ""
    safe: str = ""
    thread: str = ""
    versions: tuple[str, ...] = ()
    verdict: Literal["FAIL", "WARN", "PROPERTY"] | None = None

    def fits(self, architecture: str, check: str) -> bool:
        """Whether this entry speaks of that check on that architecture (``llama``, ``bert:causal``)."""
        base = architecture.partition(":")[0]
        names = {architecture, base, base.partition("+")[0]}
        in_types = any(fnmatch.fnmatchcase(name, pattern) for pattern in self.types for name in names)
        in_versions = not self.versions or any(__version__.startswith(version) for version in self.versions)
        return in_types and in_versions and any(fnmatch.fnmatchcase(check, pattern) for pattern in self.checks)


@functools.cache
def entries() -> tuple[Known, ...]:
    """All entries, in the order of the file: the first that fits is taken."""
    raw = tomllib.loads(resources.files(__package__).joinpath("known.toml").read_text("utf8"))
    return tuple(_entry(name, value) for name, value in raw.items())


def _entry(name: str, raw: dict[str, Any]) -> Known:
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    return Known(name=name, **cast(Any, fields))


def lookup(architecture: str, check: str) -> Known | None:
    """What is known of that check on that architecture, if anything."""
    return next((entry for entry in entries() if entry.fits(architecture, check)), None)
