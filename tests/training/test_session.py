"""One training of a run, from its first step to the exported model."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.training import progress_bar, session, train
from tests.training.tiny import tables


@pytest.mark.parametrize("shown", [True, False])
def test_a_bar_is_made_only_where_progress_is_to_be_shown(
    shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(progress_bar.ProgressBar):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(session, "ProgressBar", Counted)
    train(tables(max_steps=1, save_steps=None, eval_steps=None), tmp_path / "run", progress=shown)
    assert len(made) == shown
