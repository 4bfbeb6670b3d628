"""Shared test set-up: threads are few, nothing reaches the network, and shapes are checked where that is asked for."""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# What the command line keeps of a person's work is not that of the tests.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()

from pathlib import Path

import pytest

if os.environ.get("CHECK_SHAPES"):
    # Before anything of ours is imported: every annotation in the package, axes of tensors too, is checked at run time.
    # That costs as much as the tests themselves, so that `make test` does it in a run of its own (`make check-shapes`).
    from jaxtyping import install_import_hook

    install_import_hook("clockhands", "beartype.beartype")

import torch
from hypothesis import HealthCheck, settings

from tests.curves import leave_curves_empty
from tests.shaped import is_place, is_shaped
from tests.shared import Logged

# No clock decides whether a test passes: the first example alone may take seconds where others compute too.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
# One thread for each process of tests, unless the environment says otherwise.
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
# Pytest's plugin for logging is off (see ``logged``). As beside it, what nobody listens to is not printed.
logging.getLogger().addHandler(logging.NullHandler())
logging.lastResort = logging.NullHandler()
MANY = 1_000
"""With fewer tests, those that are left out are skipped one by one, each with its reason."""
_imported = len(sys.modules)
"""How many modules there were at the last freeze."""
HAS_WORKBENCH = find_spec("tomli_w") is not None
"""Whether more than the core is installed (``make test-core-lowest`` has the core alone)."""
SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that train for minutes")
    parser.addoption("--exhaustive", action="store_true", help="the whole catalogue, not only samples of it")
    parser.addoption("--shaped", choices=("only", "without"), help="the tests of tests/shaped.py alone, or all others")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file in vain: True for those that hold none of the tests asked for."""
    return True if config.getoption("--shaped") == "only" and not is_place(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [name for name in ("slow", "exhaustive") if not config.getoption(f"--{name}")]
    marked = [(item, name) for name in left_out for item in items if name in item.keywords]
    if len(items) > MANY:
        # To skip a test takes as long as to run a small one, and there are thousands.
        _deselect(config, items, {item for item, _ in marked})
    else:
        for item, name in marked:
            item.add_marker(pytest.mark.skip(reason=f"{name}: run with --{name}"))
    if choice := config.getoption("--shaped"):
        _choose(config, items, shaped=choice == "only")


def _choose(config: pytest.Config, items: list[pytest.Item], *, shaped: bool) -> None:
    _deselect(config, items, {item for item in items if is_shaped(item.path, item.name) is not shaped})


def _deselect(config: pytest.Config, items: list[pytest.Item], left_out: set[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Keep what is there by now out of every later collection of garbage: millions of objects that stay to the end.

    The Trainer collects after each training, pytest in each process that a test starts. Collections by themselves come
    seldom: a test makes tens of thousands of objects, nearly all of which are gone without one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Keep what a test imported out of later collections too."""
    global _imported
    if nextitem is not None and len(sys.modules) > _imported + 100:
        _imported = len(sys.modules)
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """``torch.manual_seed`` would keep the stack as text for every kind of device that is not there, in each test."""
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)


@pytest.fixture(scope="session", autouse=True)
def _untimed() -> Iterator[None]:
    """Before a comparison as few steps are timed as on a machine on which they take long."""
    with pytest.MonkeyPatch.context() as patch:
        if HAS_WORKBENCH:
            patch.setattr("clockhands.comparison.cost.TIMED_SECONDS", 0.0)
            patch.setattr("clockhands.comparison.cost.ENOUGH", 0.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _curves_undrawn() -> Iterator[None]:
    """A training leaves an empty picture of its curves: to draw them takes as long as a few steps.

    ``tests/training/test_session.py`` draws them.
    """

    with pytest.MonkeyPatch.context() as patch:
        if HAS_WORKBENCH:
            patch.setattr("clockhands.training.session.draw_curves", leave_curves_empty)
        yield


@pytest.fixture
def logged() -> Iterator[Logged]:
    """What any logger logs in a test that asks for it, also one that hands nothing on to the root.

    Pytest's own plugin, which is off, would look through hundreds of loggers of libraries six times in every test.
    """
    handler, root = Logged(), logging.getLogger()
    others = [logger for logger in root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    heard = [root, *(logger for logger in others if not logger.propagate)]
    for logger in heard:
        logger.addHandler(handler)
    yield handler
    for logger in heard:
        logger.removeHandler(handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real text beside the checkout; the test is skipped, saying so, where it is absent."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data beside this checkout")
    return folder
