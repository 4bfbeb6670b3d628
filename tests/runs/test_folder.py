"""The metrics of a run folder are read line by line, and a damaged line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.errors import CheckpointError, DataError
from clockhands.runs.folder import read_metrics, read_record


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
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 1: byte 3 of the file \(0x0a\) is not utf-8"):
        read_metrics(path)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ('{"step": "x"}', "step is 'x', but must be a whole number"),
        ('{"finished": true, "step": 1e999, "parameters": 1}', "step is inf, but must be a finite number"),
        ('{"exported_step": -1, "device": 5}', "exported_step is -1, but must be at least 0; device is 5, but must be"),
        ('{"finished": true, "step": 3}', "parameters is missing"),
        ('{"finished": 1}', "finished is 1, but must be true or false"),
        ('{"precision": 5}', "precision is 5, but must be a table"),
        ('{"precision": {"name": "x", "device": "cpu"}}', "precision has no name"),
    ],
)
def test_a_damaged_record_is_told(tmp_path: Path, content: str, wrong: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(CheckpointError, match=f"run.json is damaged: .*{wrong}.*; put back a whole copy"):
        read_record(tmp_path / "run.json")


def test_a_record_is_read_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"finished": true, "step": 3, "parameters": 9, "begun": {"from": "x"}}')
    assert read_record(tmp_path / "run.json") == {"finished": True, "step": 3, "parameters": 9, "begun": {"from": "x"}}
