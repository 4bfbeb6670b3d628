"""The engine of the page in a real browser, asked from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clockhands.exploring.model_data import ExplorerModel
from clockhands.exploring.page import make_page
from tests.report.chromium import Browser


def ask(browser: Browser, script: str) -> Any:
    """The JSON value that an expression comes to, or that its promise is kept with."""
    answer = browser.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
    assert "exceptionDetails" not in answer, answer
    return answer["result"].get("value")


def open_page(browser: Browser, engine: str, models: Sequence[ExplorerModel], folder: Path) -> None:
    """Open a page of models, and load them into ``models`` by their keys."""
    path = folder / "page.html"
    path.write_text(make_page(models, "clockhands explore"), encoding="utf8")
    browser.open(path, 1000)
    ask(browser, f"{engine}; globalThis.Engine = Engine; 0")
    ask(browser, "globalThis.models = Object.fromEntries(Engine.loadModels().map((model) => [model.id, model])); 0")
