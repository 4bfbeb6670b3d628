"""A model is exported as a whole, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import CheckpointError
from clockhands.runs.export import export_model


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
