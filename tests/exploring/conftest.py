"""A small translator with sinusoids, trained once until it uses them; the engine of the page, and a browser for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clockhands.runs import Run
from clockhands.training import train
from tests.exploring.node import build, require_node
from tests.generation.conftest import TINY, TRAINING
from tests.report.chromium import Browser, open_browser


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = {
        "data": {"corpus": "roles", "train": 600, "validation": 10, "test": 40, "adjectives": 0.0},
        "tokenizer": {"kind": "word"},
        "model": TINY,
        "position": {"scheme": "sinusoidal"},
        "batches": {"size": 64, "bucketed": False},
        "training": {**TRAINING, "learning_rate": 8e-3, "max_steps": 150},
    }
    return train(recipe, tmp_path_factory.mktemp("explored") / "translator")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The engine alone as a script, which puts its functions into ``Engine``."""
    require_node()
    folder = tmp_path_factory.mktemp("engine")
    build("--config", "tests/engine.vite.config.ts", "--outDir", str(folder))
    return (folder / "engine.js").read_text(encoding="utf8")


@pytest.fixture
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened
