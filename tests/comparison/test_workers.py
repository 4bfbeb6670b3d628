"""The same trials on a real Ray cluster of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from clockhands.comparison.execution import run_plan
from clockhands.comparison.workers import Cluster, TrialProgress
from clockhands.errors import ClockhandsError
from tests.comparison.planted import Events, plan

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra: pip install '.[ray]'")


def _named(name: str) -> list[psutil.Process]:
    """Processes of Ray that this test began: a driver's cluster is its own child."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may have ended meanwhile
            if any(name in word for word in one.cmdline()[:1]):
                found.append(one)
    return found


def _kill(name: str, killed: list[int]) -> threading.Thread:
    """Kill the first process of that name as soon as there is one."""

    def wait() -> None:
        for _ in range(6000):  # on a busy machine Ray takes minutes to start
            time.sleep(0.1)
            if found := _named(name):
                killed.append(found[0].pid)
                os.kill(found[0].pid, signal.SIGKILL)
                return

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def _wait_for(what: Callable[[], list[psutil.Process]]) -> psutil.Process:
    for _ in range(1200):
        if found := what():
            return found[0]
        time.sleep(0.1)
    raise AssertionError("it did not begin")


@needs_ray
def test_a_trial_lost_with_its_node_is_run_again_and_never_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six nodes five die, one after the other, so that one of two trials has lost three or more."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    lost: list[int] = []

    def lose_nodes() -> None:
        for _ in range(5):
            work = _wait_for(lambda: [one for one in _named("ray::_work") if one.ppid() not in (*lost, 1)])
            lost.append(work.ppid())
            os.kill(lost[-1], signal.SIGKILL)
            os.kill(work.pid, signal.SIGKILL)

    thread = threading.Thread(target=lose_nodes)
    try:
        for _ in range(6):
            cluster.add_node(num_cpus=1)
        thread.start()
        found = run_plan(plan(seeds=1), tmp_path / "sweep", on="ray")
        thread.join()
    finally:
        cluster.shutdown()
    assert len(set(lost)) == 5
    assert sorted(trial.key for trial in found.trials) == sorted(plan(seeds=1).trials)
    assert {trial.status for trial in found.trials} == {"finished"}


@needs_ray
def test_a_worker_that_dies_is_run_again(tmp_path: Path) -> None:
    killed: list[int] = []
    thread = _kill("ray::_work", killed)
    progress = Events()
    found = run_plan(plan(), tmp_path / "sweep", on="ray", progress=progress)
    thread.join()
    assert len(killed) == 1
    assert sorted(trial.key for trial in found.trials) == sorted(plan().trials)
    assert {trial.status for trial in found.trials} == {"finished"}
    assert progress.ended == [trial.key for trial in found.trials]


@needs_ray
def test_a_cluster_that_is_not_there_is_told() -> None:
    with pytest.raises(ClockhandsError, match=r"^no Ray cluster answers at ray://127\.0\.0\.1:9 \(.*'ray stop'"):
        list(Cluster("ray://127.0.0.1:9", 1, 0.0).run([], TrialProgress()))
