"""The same trials on a real Ray cluster of this machine; and what is said where Ray hangs or fails, without it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from clockhands.comparison.execution import run_plan
from clockhands.comparison.folder import read_comparison
from clockhands.comparison.ray_workers import PATIENCE, ClusterHead, start_ray
from clockhands.errors import ClockhandsError
from tests.comparison.planted import Events, plan


@pytest.mark.parametrize(("reached", "place"), [("10.0.0.7:6379", ("10.0.0.7", 6379)), ("[::1]:25001", ("::1", 25001))])
def test_the_head_of_the_own_cluster_is_asked_by_its_port(reached: str, place: tuple[str, int]) -> None:
    ray = SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(gcs_address=reached))
    assert ClusterHead(ray, "ray").place == place
    assert ClusterHead(ray, "ray://head:10001").place is None


def test_a_head_that_is_silent_for_too_long_is_lost() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        reached = f"127.0.0.1:{listening.getsockname()[1]}"
        head = ClusterHead(SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(gcs_address=reached)), "ray")
        head.look()
    head.look()  # silent, but not for long
    head.seen -= 2 * PATIENCE
    with pytest.raises(ConnectionError, match="does not answer"):
        head.look()


def test_a_start_that_hangs_ends_in_a_sentence() -> None:
    release = threading.Event()
    hanging: Any = SimpleNamespace(init=lambda **_: release.wait(30))
    with pytest.raises(ClockhandsError, match=r"^Ray did not answer at ray within 0 seconds; .* leave out --on"):
        start_ray(hanging, "ray", limit=0.2)
    release.set()


def test_whatever_ray_raises_is_told_in_a_sentence() -> None:
    def late(**_: object) -> None:
        raise Exception("The current node timed out during startup.\nThis could happen because the GCS is overloaded.")

    slow: Any = SimpleNamespace(init=late)
    with pytest.raises(ClockhandsError, match=r"^no Ray cluster answers at ray \(This could happen because the GCS"):
        start_ray(slow, "ray")


def test_the_thread_that_began_ray_lives_on() -> None:
    """Linux ends Ray's processes with it."""
    began: list[threading.Thread] = []
    ready: Any = SimpleNamespace(init=lambda **_: began.append(threading.current_thread()))
    start_ray(ready, "ray")
    began[0].join(0.2)
    assert began[0].is_alive() and began[0].daemon, "and does not keep the process alive"


def test_a_start_that_succeeds_says_nothing() -> None:
    options: dict[str, object] = {}
    ready: Any = SimpleNamespace(init=options.update)
    start_ray(ready, "ray")
    assert options == {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
    options.clear()
    start_ray(ready, "ray://host:10001")
    assert options == {"log_to_driver": False, "logging_level": "error", "address": "ray://host:10001"}


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


DRIVER = """
import sys
from clockhands.comparison.execution import run_plan
from clockhands.errors import ClockhandsError
from tests.comparison.planted import plan
try:
    run_plan(plan(budget={"steps": 100000}), sys.argv[1], on="ray")
except ClockhandsError as fault:
    sys.exit(f"Said: {fault}")
"""


@needs_ray
def test_a_head_that_dies_is_told_and_nothing_is_stored(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder)], stderr=subprocess.PIPE, text=True)
    _wait_for(lambda: _named("ray::_work"))
    os.kill(_wait_for(lambda: _named("gcs_server")).pid, signal.SIGKILL)
    _, said = driver.communicate(timeout=120)
    assert driver.returncode == 1
    assert "give the same command again" in said.partition("Said:")[2]
    assert read_comparison(folder).trials == ()


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
