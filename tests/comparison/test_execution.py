"""Trials for real: stopped by force and continued, in worker processes and on a Ray cluster of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from clockhands.comparison.execution import Cluster, TrialProgress, make_workers, run_plan
from clockhands.comparison.results import RESULTS, read_comparison
from clockhands.errors import BusyError, ClockhandsError, UsageError
from clockhands.files import lock_folder
from tests.comparison.planted import Events, plan

SCRIPT = """
from clockhands.comparison.execution import run_plan
from tests.comparison.planted import plan
run_plan(plan(), {out!r})
"""
"""As people write it who do not know that workers import a script again, unless they are kept from it."""


def test_killed_and_continued_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    script = tmp_path / "go.py"
    script.write_text(SCRIPT.format(out=str(out)), "utf8")
    root = Path(__file__).parent.parent.parent
    path = os.pathsep.join((str(root / "src"), str(root)))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, str(script)], cwd=root, env=environment)
    kept = _first_line(out / RESULTS, child)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with (out / RESULTS).open("a", encoding="utf8") as stream:
        stream.write('{"variant": "sinusoidal", "se')  # what a crash may leave
    ended = {trial.key for trial in read_comparison(out).trials}
    progress, killed = Events(), threading.Thread(target=_kill_first_worker)
    killed.start()
    comparison = run_plan(plan(), out, progress=progress)
    killed.join()
    assert ended and not ended & set(progress.begun), "what had ended is not run again"
    assert len(progress.begun) == len({*progress.begun}) + 1, "the trial whose worker was killed is begun again"
    assert sorted(trial.key for trial in comparison.trials) == sorted(plan().trials)
    assert {trial.status for trial in comparison.trials} == {"finished"}
    assert (out / RESULTS).read_text("utf8").splitlines()[0] == kept
    again = Events()
    assert run_plan(plan(), out, progress=again).trials == comparison.trials and not again.begun
    with pytest.raises(UsageError, match=r"holds the results of another plan, which differs in budget; "):
        run_plan(plan(budget={"steps": 9}), out)
    assert len(read_comparison(out).trials) == 4, "nothing is lost by the refusal"


def _kill_first_worker() -> None:
    """Kill the first process that runs a trial of ours, in the middle of it."""
    for _ in range(1200):
        time.sleep(0.1)
        for one in psutil.Process().children():
            if "spawn_main" in " ".join(one.cmdline()) and one.num_threads() > 2:
                one.kill()
                return


def _first_line(path: Path, child: subprocess.Popen[bytes]) -> str:
    for _ in range(1200):
        if path.is_file() and "\n" in (text := path.read_text("utf8")):
            return text.splitlines()[0]
        assert child.poll() is None, "the comparison ended before it was killed"
        time.sleep(0.1)
    raise AssertionError("no trial ended within two minutes")


def test_a_folder_in_which_another_process_writes_is_refused(tmp_path: Path) -> None:
    found: list[str] = []

    def another() -> None:
        try:
            run_plan(plan(), tmp_path / "out")
        except BusyError as fault:
            found.append(str(fault))

    with lock_folder(tmp_path / "out"):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    assert len(found) == 1 and f"out is in use: process {os.getpid()} on " in found[0]
    assert not (tmp_path / "out").exists()


def test_workers_are_counted() -> None:
    with pytest.raises(UsageError, match="workers is 0; it must be 1 or more"):
        make_workers(workers=0, threads=1, on=None, gpus=0.0)
    with pytest.raises(UsageError, match="given out by Ray alone"):
        make_workers(workers=1, threads=1, on=None, gpus=0.5)


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


OWN_SCHEME = """
from clockhands.schemes import CATALOGUE, Sinusoidal

@CATALOGUE.register("mine")
class Mine(Sinusoidal):
    "A scheme of the user's own."
"""
OWN_SCRIPT = """
import sys
sys.path[:0] = {path!r}
{register}
from tests.comparison.planted import plan
from clockhands.comparison.execution import run_plan
if __name__ == "__main__":
    done = run_plan(plan(vary={{"position.scheme": ["sinusoidal", "mine"]}}, seeds=1), {out!r}, workers=2)
    print([(trial.status, trial.error) for trial in done.trials])
"""


@pytest.mark.parametrize("in_module", [True, False])
def test_a_scheme_that_the_users_module_registered_is_known_to_the_workers(tmp_path: Path, in_module: bool) -> None:
    """In workers its name was unknown, so that all of its trials failed after the others were trained."""
    (tmp_path / "own_scheme.py").write_text(OWN_SCHEME)
    script, out = tmp_path / "script.py", tmp_path / "out"
    register = "import own_scheme" if in_module else OWN_SCHEME
    script.write_text(OWN_SCRIPT.format(path=[*sys.path, str(tmp_path)], register=register, out=str(out)))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240)
    if in_module:
        assert done.stdout.strip() == "[('finished', None), ('finished', None)]", done.stderr
    else:
        assert "the scheme 'mine' is registered in the script that was started" in done.stderr and not out.exists()
