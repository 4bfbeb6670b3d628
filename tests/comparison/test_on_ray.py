"""The same trials on a real Ray cluster of this machine; skipped where Ray is not installed (the extra ``ray``)."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from clockhands.comparison.run import run_plan
from tests.comparison.planted import plan

pytest.importorskip("ray", reason="Ray is an extra: pip install 'clockhands[ray]'")


def _named(name: str) -> list[psutil.Process]:
    """Processes of Ray that this test began: a driver's cluster is its own child."""
    children = psutil.Process().children(recursive=True)
    return [one for one in children if any(name in word for word in one.cmdline()[:1])]


def _kill(name: str, killed: list[int]) -> threading.Thread:
    """Kill the first process of that name as soon as there is one."""

    def wait() -> None:
        for _ in range(600):
            time.sleep(0.1)
            if found := _named(name):
                killed.append(found[0].pid)
                os.kill(found[0].pid, signal.SIGKILL)
                return

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_worker_that_dies_is_run_again(tmp_path: Path) -> None:
    killed: list[int] = []
    thread = _kill("ray::_work", killed)
    ended: list[Any] = []
    found = run_plan(plan(), tmp_path / "sweep", on="ray", watch=lambda event, what: ended.append((event, what)))
    thread.join()
    assert len(killed) == 1
    assert sorted((one["variant"], one["seed"]) for one in found.trials) == sorted(plan().trials)
    assert {one["status"] for one in found.trials} == {"finished"}
    assert [event for event, _ in ended].count("end") == len(plan().trials)
