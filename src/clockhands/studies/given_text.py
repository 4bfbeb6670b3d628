"""Text that a study needs and that does not come with Clockhands: what its files are, and where the user has them.

::

    [text]                                    # of a study's file
    source = "https://github.com/multi30k/dataset"
    [text.files]                              # each with its SHA-256, so that results of other text are never mixed in
    "train.de" = "81ff3e..."

Its recipe names the files as if they lay beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from clockhands.comparison import Plan
from clockhands.errors import ConfigError, DataError, UsageError
from clockhands.findings import join_words
from clockhands.reading import refuse_strange_file
from clockhands.runs.recipe import vary_recipe


@dataclass(frozen=True)
class GivenText:
    """Files by name with their SHA-256, and where they can be had."""

    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    def bind(self, plan: Plan, beside: Path, folder: Path | None) -> Plan:
        """Return the plan with its text in ``folder``; None leaves it where the recipe names it, ``beside``.

        Raises UsageError where a folder is given and the study reads no text, and as ``check_files``.
        """
        if not self.files:
            if folder is not None:
                raise UsageError("this study makes its own text: leave --text out")
            return plan
        here = (folder or beside).absolute()
        bound = replace(plan, files=dict(self.files), folder=here)
        if folder is None:
            return bound
        self.check_files(folder)
        moved = {
            f"data.{key}": str(here / Path(value).relative_to(beside.absolute()))
            for key, value in plan.recipe.tables["data"].items()
            if isinstance(value, str) and Path(value).is_relative_to(beside.absolute())
        }
        return replace(bound, recipe=vary_recipe(plan.recipe, moved))

    def check_files(self, folder: Path) -> None:
        """Raise DataError for a file that cannot be read, UsageError for one that is not the study's."""
        missing = [name for name in self.files if not (folder / name).is_file()]
        if missing:
            raise DataError(f"{folder} does not hold {join_words(missing)}; {self.advice}")
        other = []
        for name, digest in self.files.items():
            refuse_strange_file(folder / name, DataError)
            try:
                with (folder / name).open("rb") as stream:
                    same = hashlib.file_digest(stream, "sha256").hexdigest() == digest
            except OSError as fault:
                raise DataError(f"{folder / name} cannot be read: {fault}") from fault
            other += [] if same else [name]
        if other:
            raise UsageError(
                f"{join_words(other)} in {folder} is not the text of this study (its SHA-256 differs); {self.advice}"
            )

    def require(self, folder: str | None) -> None:
        """Raise UsageError where the study needs text and no folder is given."""
        if self.files and folder is None:
            raise UsageError(f"this study needs text that does not come with Clockhands; {self.advice}")

    @property
    def advice(self) -> str:
        """What the user can do about it."""
        return (
            f"get {join_words(self.files)} from {self.source} and name their folder with --text; to compare on your "
            "own text, use clockhands compare"
        )


def read_given_text(tables: Mapping[str, object], source: str) -> GivenText:
    """Return what ``[text]`` of a study's file says. Raises ConfigError for other keys."""
    if tables and set(tables) != {"source", "files"}:
        raise ConfigError(["[text] holds source and files, and nothing else"], source)
    return GivenText(**tables)  # type: ignore[arg-type]
