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


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("[]", "it has no step"),
        ('{"loss": 2.0}', "it has no step"),
        ('{"step": "<b>"}', "it has no step"),
        ('{"step": 2, "loss": "<script>alert(1)</script>"}', r"'loss' is '<script>alert\(1\)</script>'"),
        ('{"step": 2, "validation_loss": [1]}', r"'validation_loss' is \[1\]"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_a_line_of_metrics_is_a_step_with_numbers(tmp_path: Path, line: str, wrong: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "loss": 3.5}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(DataError, match=rf"metrics\.jsonl, line 2 .*{wrong}.*; delete that line"):
        read_metrics(path)


def test_metrics_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(DataError, match="is not UTF-8 text"):
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
