"""What a person sees while a model is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Progress:
    """Counts steps, of which more may become known on the way; silent without a bar."""

    def __init__(self, bar: Any = None) -> None:
        self.bar, self.total = bar, 0
        self.task = None if bar is None else bar.add_task("opening", total=None)

    def expect(self, steps: int) -> None:
        """So many more steps will come."""
        self.total += steps
        if self.bar is not None:
            self.bar.update(self.task, total=self.total)

    def __call__(self, done: str) -> None:
        """One step is done."""
        if self.bar is not None:
            self.bar.update(self.task, description=done, advance=1)


@contextmanager
def show_progress(shown: bool) -> Iterator[Progress]:
    """A progress bar on standard error where that is a terminal, or none."""
    if not shown:
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield Progress(bar)
