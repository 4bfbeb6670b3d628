"""From Python, no bar of a library stands between a person's own output, and the libraries are left as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from transformers.utils import logging

from clockhands.checking import examine
from clockhands.models.door import open_subject
from clockhands.quiet import without_bars
from clockhands.runs import Run, open_run
from tests.generation.conftest import translator

__all__ = ["translator"]


@pytest.fixture
def bars() -> Iterator[None]:
    """Bars as transformers draws them unasked."""
    drawn = logging.is_progress_bar_enabled()
    logging.enable_progress_bar()
    yield
    if not drawn:
        logging.disable_progress_bar()


@pytest.mark.usefixtures("bars")
@pytest.mark.parametrize(
    "opens",
    [
        lambda path: open_run(path),
        lambda path: open_subject(path, side="encoder"),
        lambda path: examine(path, only=["load.round_trip", "precision.load"]),
    ],
    ids=["generation", "inspection", "checking"],
)
def test_opening_a_model_draws_no_bar(
    opens: Callable[[str], object], translator: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    opens(str(translator.path))
    assert "%|" not in "".join(capsys.readouterr())
    assert logging.is_progress_bar_enabled()


def test_bars_that_were_off_stay_off() -> None:
    drawn = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    with without_bars():
        pass
    assert not logging.is_progress_bar_enabled()
    if drawn:
        logging.enable_progress_bar()
