"""Checkpoints: never half of one, the right ones kept, damaged and foreign ones named, means that are means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from clockhands.errors import CheckpointError
from clockhands.runs import checkpoints


def make(folder: Path, step: int, value: float = 0.0) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    save_file({"w": torch.full((2,), value), "n": torch.tensor(step)}, path / "model.safetensors")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    (path / "loss.json").write_text(json.dumps({"sums": [0.0], "logged": step}))
    torch.save({"state": {}}, path / "optimizer.pt")
    torch.save({"last_epoch": step}, path / "scheduler.pt")
    return path


def test_they_are_listed_by_step_and_nothing_else_is(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        make(tmp_path, step)
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / ".saving").mkdir()
    assert [checkpoints.get_step(path) for path in checkpoints.list_checkpoints(tmp_path)] == [9, 10, 100]


def test_a_save_that_fails_leaves_the_old_one_and_says_so(tmp_path: Path) -> None:
    make(tmp_path, 5)
    with (
        pytest.raises(CheckpointError, match=r"step 10 .* No space left on device; checkpoint-5 is intact.*--resume"),
        checkpoints.stage_checkpoint(tmp_path, 10) as staging,
    ):
        (staging / "checkpoint-10").mkdir()
        raise OSError(28, "No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-5"]
    checkpoints.check_resumable(tmp_path / "checkpoint-5")


def test_a_save_appears_whole_and_replaces_one_of_the_same_step(tmp_path: Path) -> None:
    make(tmp_path, 5)
    with checkpoints.stage_checkpoint(tmp_path, 5) as staging:
        make(staging, 5, 7.0)
        assert checkpoints.read_weights(tmp_path / "checkpoint-5")["w"][0] == 0
    assert checkpoints.read_weights(tmp_path / "checkpoint-5")["w"][0] == 7


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("trainer_state.json", None, r"is not a checkpoint of a training run \(trainer_state.json not found\)"),
        ("trainer_state.json", b"{", "cannot read .*trainer_state.json: it is not JSON"),
        ("trainer_state.json", b"[]", "trainer_state.json: it holds a list"),
        ("trainer_state.json", b'{"global_step": 4}', "its state is of step 4"),
        ("model.safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}", "delete that checkpoint"),
        ("model.safetensors", None, "cannot be read"),
        ("optimizer.pt", b"PK\x03\x04broken", "delete that checkpoint to continue from the one before"),
        ("scheduler.pt", b"", "cannot be read"),
        ("optimizer.pt", None, "cannot be read"),
        ("loss.json", None, "cannot read .*loss.json"),
        ("loss.json", b"{", "cannot read .*loss.json: it is not JSON"),
        ("loss.json", b'{"sums": "x", "logged": 4}', "is damaged: loss.json cannot be read"),
        ("loss.json", b'{"sums": [], "logged": 4}', "is damaged: loss.json holds no loss"),
    ],
)
def test_a_damaged_or_foreign_one_is_named(tmp_path: Path, file: str, content: bytes | None, message: str) -> None:
    path = make(tmp_path, 5)
    checkpoints.check_resumable(path)
    (path / file).unlink() if content is None else (path / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        checkpoints.check_resumable(path)


class Evil:
    """Would make a file if it were unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> object:
        return (Path.touch, (self.target,))


def test_no_code_of_a_foreign_checkpoint_runs(tmp_path: Path) -> None:
    path = make(tmp_path, 5)
    torch.save(Evil(tmp_path / "ran"), path / "optimizer.pt")
    with pytest.raises(CheckpointError, match="cannot be read") as caught:
        checkpoints.check_resumable(path)
    assert not (tmp_path / "ran").exists()
    assert "weights_only" not in str(caught.value), "torch's own words tell how to run it"


def test_half_of_a_deleted_one_is_not_listed_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, 5)
    monkeypatch.setattr(checkpoints.shutil, "rmtree", lambda *_, **__: None)  # killed before it deletes a file
    checkpoints.remove_checkpoint(path)
    assert checkpoints.list_checkpoints(tmp_path) == [] and list(tmp_path.iterdir())
    monkeypatch.undo()
    checkpoints.remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_mean_is_the_mean_and_counters_are_the_last(tmp_path: Path) -> None:
    paths = [make(tmp_path, step, value) for step, value in ((1, 0.25), (2, 1.0), (3, 4.0))]
    weights = checkpoints.average_weights(paths)
    assert weights["w"].tolist() == [1.75, 1.75]
    assert weights["w"].dtype == torch.float32
    assert weights["n"] == 3


@pytest.mark.parametrize(
    "other",
    [{"w": torch.zeros(3)}, {"w": torch.zeros(1)}, {"w": torch.zeros(2, dtype=torch.float64)}, {"v": torch.zeros(2)}],
)
def test_weights_of_other_names_shapes_or_types_cannot_be_averaged(tmp_path: Path, other: dict[str, Any]) -> None:
    first, second = make(tmp_path, 1), make(tmp_path, 2)
    save_file({**other, "n": torch.tensor(2)}, second / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"checkpoint-2 holds other weights than .*checkpoint-1 \(w\)"):
        checkpoints.average_weights([first, second])


def test_room_is_asked_for_only_where_the_disk_is_full(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="Make room"), checkpoints.stage_checkpoint(tmp_path, 1):
        raise SafetensorError("I/O error: No space left on device (os error 28)")
    message = r"CUDA error: .*; none was saved before\. Mend that, then: "
    with pytest.raises(CheckpointError, match=message), checkpoints.stage_checkpoint(tmp_path, 1):
        raise RuntimeError("CUDA error: unspecified launch failure")


def test_a_checkpoint_that_cannot_be_moved_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", refuse)
    message = r"step 5 cannot be saved in .*: Read-only file system"
    with pytest.raises(CheckpointError, match=message), checkpoints.stage_checkpoint(tmp_path, 5) as staging:
        make(staging, 5)
