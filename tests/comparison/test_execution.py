"""Trials for real: stopped by force and continued, diverged and counted, in worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from clockhands.comparison.execution import make_workers, run_plan
from clockhands.comparison.folder import RESULTS, read_comparison
from clockhands.comparison.results import Cost
from clockhands.errors import BusyError, UsageError
from clockhands.files import lock_folder
from tests.comparison.planted import Events, plan

COSTS = {name: Cost(parameters=1, steps=6, flops=1, seconds=0.1, changes={}) for name in ("sinusoidal", "learned")}
SCRIPT = """
from clockhands.comparison.execution import run_plan
from tests.comparison.planted import plan
if __name__ == "__main__":
    run_plan(plan(), {out!r})
"""


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
