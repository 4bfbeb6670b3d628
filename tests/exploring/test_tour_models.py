"""The tour's models by their labels; the tour is run where it is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.errors import CheckpointError
from clockhands.exploring.tour_models import LABELS, find_tour_models
from tests.studies.tour.short import shorten_tour


@pytest.mark.slow
def test_an_absent_tour_is_run_and_then_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_tour(monkeypatch)
    said: list[str] = []
    found = find_tour_models(tmp_path / "tour", show=False, say=said.append)
    assert list(found) == list(LABELS.values())
    assert all(run.finished for run in found.values())
    assert said[0] == f"there is no tour in {tmp_path / 'tour'} yet: it is run first"
    assert (tmp_path / "tour" / "report.html").is_file()
    assert found == find_tour_models(tmp_path / "tour", show=False, say=pytest.fail)


def test_a_folder_without_the_tour_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a training run"):
        find_tour_models(tmp_path, show=False, say=pytest.fail)
