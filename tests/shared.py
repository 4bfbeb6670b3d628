"""What several tests need; what is expensive is made once, whichever process of a test run comes to it first."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from filelock import FileLock

from clockhands.findings import Figure, Mark, Panel


def load_script(path: Path, name: str = "") -> ModuleType:
    """Import a file that is in no package."""
    spec = spec_from_file_location(name or path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder that ``make(folder)`` fills, once for all processes. Tests that write into it copy it first."""
    base = factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / name
    done = folder.with_name(f"{name}.done")
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


class Logged(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def text(self) -> str:
        """The messages, one a line."""
        return "\n".join(record.getMessage() for record in self.records)


@contextmanager
def sketched() -> Iterator[None]:
    """Check every figure of a page, and draw a small one in its place.

    For tests that write whole pages and ask for their text: to draw takes longer than all else that they do. Each kind
    of figure is drawn in tests/report, those of ``inspect`` in tests/inspection/test_run.py.
    """

    from clockhands.report import figures  # late: Matplotlib is heavy
    from clockhands.report.figures.draw import check_figure

    def sketch(figure: Figure, name: str, **_: Any) -> str:
        check_figure(figure, name)
        return small.replace("a-small-one", name)

    def preview(figure: Figure, name: str) -> bytes:
        check_figure(figure, name)
        return b"PNG"

    small = _small()
    assert "a-small-one" in small
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", sketch)
        patch.setattr(figures, "draw_preview", preview)
        yield


@cache
def _small() -> str:
    from clockhands.report import figures

    return figures.draw(Figure((Panel((Mark("line", x=(0, 1), y=(0, 1)),)),)), "a-small-one")
