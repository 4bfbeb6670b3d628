"""Shared test set-up: shape annotations are enforced, threads are few, nothing reaches the network."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Before anything of ours is imported: every jaxtyping annotation in the package is checked at run time.
install_import_hook("clockhands", "beartype.beartype")

import torch

torch.set_num_threads(1)
SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that train for minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real text beside the checkout; the test is skipped, saying so, where it is absent."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data beside this checkout")
    return folder
