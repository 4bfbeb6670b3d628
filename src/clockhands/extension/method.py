"""One way to make a model read further, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Method:
    """One way: options of position in the names of our scheme *rope*, another scheme, or a way to stretch a table.

    Args:
        name: what it is called in tables and options.
        description: what it does, in a few words.
        options: of position; empty to leave them as trained.
        table: a key of ``STRETCHES``, for a model with a learned table; empty for others.
        rows: of the table that it makes.
        scheme: a position table as recipes have it, for a method that needs another attention; empty for others.
    """

    name: str
    description: str
    options: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""
    rows: int = 0
    scheme: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name with all options, under which results are kept."""
        return ",".join([self.name, str(self.rows), *(f"{key}={value}" for key, value in self._settings)])

    @property
    def _settings(self) -> list[tuple[str, Any]]:
        return sorted({**self.options, **self.scheme}.items())

    @property
    def spares_short_texts(self) -> bool:
        """Whether a text of at most the trained length is read exactly as by the model as it is, by definition."""
        if self.options.get("spectrum") == "longrope":
            return {*self.options["short_factor"], self.options["attention_factor"]} == {1.0}
        return self.options.get("spectrum") == "dynamic" or self.table not in ("", "interpolated")
