"""The progress bar while a model is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clockhands.streams import make_console

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """Accepts the steps of a measurement and shows none of them; ``BarProgress`` does."""

    def expect(self, steps: int) -> None:
        """Accept that ``steps`` more steps are to come."""

    def advance(self, step: str) -> None:
        """Accept that one step is done: ``step``, by name."""


class BarProgress(Progress):
    """Counts the steps of a measurement and shows them on a bar of rich."""

    def __init__(self, bar: Bar) -> None:
        self.bar, self.total = bar, 0
        self.task = bar.add_task("opening", total=None)

    def expect(self, steps: int) -> None:
        """Add ``steps`` to the number of steps to come."""
        self.total += steps
        self.bar.update(self.task, total=self.total)

    def advance(self, step: str) -> None:
        """Count one step as done, and show its name."""
        self.bar.update(self.task, description=step, advance=1)


@contextmanager
def show_progress(shown: bool) -> Iterator[Progress]:
    """Inside the block, a progress bar is shown on standard error if ``shown`` and if that is a terminal."""
    if not shown:
        yield Progress()
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = make_console(errors=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield BarProgress(bar)
