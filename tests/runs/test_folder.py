"""The files of a run folder are read and replaced as wholes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import CheckpointError, DataError
from clockhands.runs.folder import export_model, read_metrics


def test_only_a_cut_off_last_line_of_metrics_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2 is not JSON"):
        read_metrics(path)


class Files:
    """Saves two files, as a model does."""

    def save_pretrained(self, folder: Path, state_dict: Any) -> None:
        folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            (folder / name).write_text("new")


def test_an_export_that_fails_midway_leaves_no_mixture_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_model(tmp_path, Files())  # type: ignore[arg-type]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "config.json": "new",
        "model.safetensors": "new",
    }
    move = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if self.name == "config.json":
            raise OSError(28, "No space left on device")
        return move(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(CheckpointError, match="No space left"):
        export_model(tmp_path, Files())  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
