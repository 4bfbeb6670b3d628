"""The sweep goes on where a model hangs or crashes, and begins again where it stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

from clockhands.checking import sweep as sweeping
from clockhands.checking.code_version import identify_code
from clockhands.checking.result import Result, versions
from clockhands.checking.verdict.outcome import Outcome
from clockhands.errors import DataError


def serve(pipe: Connection, *_: Any) -> None:
    """A worker without models: some names crash it, some hang."""
    while True:
        name = pipe.recv()
        if name.startswith("crash"):
            os._exit(7)
        if name.startswith("hang"):
            time.sleep(60)
        if name.startswith("stopped"):
            subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        pipe.send(Result(name, "causal", "RoPE", (Outcome("shift", "PASS", 1e-7),), versions()).as_dict())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_serve", serve)
    context = sweeping.multiprocessing.get_context("fork")
    monkeypatch.setattr(sweeping.multiprocessing, "get_context", lambda _: context)


NAMES = ["a:causal", "crash:causal", "b:causal", "hang:causal", "c:causal"]


def test_a_crash_and_a_hang_are_recorded_and_the_rest_is_done(quick: None, tmp_path: Path) -> None:
    found = sweeping.sweep(NAMES, tmp_path, workers=2, limit=1.5)
    assert [result.model for result in found] == NAMES
    faults = {result.model: result.fault for result in found if result.fault}
    assert faults == {"crash:causal": "the process ended with code 7", "hang:causal": "no answer within 2 s"}


def test_time_in_which_a_worker_is_stopped_does_not_count(quick: None, tmp_path: Path) -> None:
    (found,) = sweeping.sweep(["stopped:causal"], tmp_path, limit=1.5)
    assert (found.fault, len(found.outcomes)) == ("", 1)


def test_time_in_which_the_sweep_itself_was_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = sweeping._Worker(sweeping.multiprocessing.Process(), Pipe()[0])
    clock, running = iter((100.0, 100.5, 3700.5, 3701.0)), psutil.Process()
    monkeypatch.setattr(sweeping.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sweeping.psutil, "Process", lambda pid: running)
    sweeping._give(worker, sweeping.deque())
    for spent in (0.5, 2.5, 3.0):
        sweeping._count(worker)
        assert worker.spent == spent


def test_an_interrupted_sweep_is_resumed(quick: None, tmp_path: Path) -> None:
    sweeping.sweep(["a:causal"], tmp_path, only=["shift"])
    kept = tmp_path / "results.jsonl"
    kept.write_text(kept.read_text() + '{"schema": 1, "model": "b:cau')  # stopped in the middle of a line
    told: list[str] = []
    both = ["a:causal", "b:causal"]
    sweeping.sweep(both, tmp_path, only=["shift"], progress=lambda result, *_: told.append(result.model))
    assert told == ["b:causal"]
    assert [result.model for result in sweeping.sweep(both, tmp_path, only=["shift"])] == both


def test_what_was_found_of_fewer_checks_is_done_again(quick: None, tmp_path: Path) -> None:
    told: list[str] = []
    options = {"progress": lambda result, *_: told.append(result.model)}
    sweeping.sweep(["a:causal"], tmp_path, only=["shift"], **options)
    sweeping.sweep(["a:causal"], tmp_path, only=["shift"], **options)
    assert told == ["a:causal"]
    sweeping.sweep(["a:causal"], tmp_path, **options)
    assert told == ["a:causal", "a:causal"], "the matrix would hold one check and seem whole"


def test_what_another_version_found_is_done_again(quick: None, tmp_path: Path) -> None:
    old = Result("a:causal", "causal", "RoPE", (), {**versions(), "transformers": "4.0"})
    (tmp_path / "results.jsonl").write_text(json.dumps(old.as_dict()) + "\n")
    (found,) = sweeping.sweep(["a:causal"], tmp_path)
    assert found.versions == {**versions(), "code": identify_code()}
    assert found.outcomes


def test_what_other_checks_measured_is_done_again_after_what_nobody_did(quick: None, tmp_path: Path) -> None:
    old = Result("a:causal", "causal", "RoPE", (Outcome("shift", "FAIL", 1.0),), {**versions(), "code": "0ld"})
    (tmp_path / "results.jsonl").write_text(json.dumps(old.as_dict()) + "\n")
    assert [kept.versions["code"] for kept in sweeping.read_kept(tmp_path)] == ["0ld"]
    told: list[str] = []
    sweeping.sweep(["a:causal", "b:causal"], tmp_path, progress=lambda result, *_: told.append(result.model))
    assert told == ["b:causal", "a:causal"]
    assert {kept.versions["code"] for kept in sweeping.read_kept(tmp_path)} == {identify_code()}


def test_nothing_kept_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no result of a sweep: run clockhands check --all"):
        sweeping.read_kept(tmp_path)


def test_a_real_worker_checks_a_real_architecture(tmp_path: Path) -> None:
    (result,) = sweeping.sweep(["rwkv:causal"], tmp_path, only=["cache.steps"])
    (outcome,) = result.outcomes
    assert outcome.verdict == "FAIL"
    assert "rows of a batch mix" in outcome.cause


def test_every_build_has_one_name() -> None:
    names = sweeping.list_builds()
    assert len(names) == len(set(names)) >= 240
    assert [name for name in names if name.startswith("gpt2:")] == ["gpt2:causal"]


def test_a_pipe_that_is_closed_ends_the_worker() -> None:
    ours, theirs = Pipe()
    ours.close()
    sweeping._serve(theirs, ["deterministic"], False)
