"""Trials for real: stopped by force and continued, diverged and counted, in worker processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.comparison.execution import run_plan, task
from clockhands.comparison.folder import RESULTS, Results, Store, read_results
from clockhands.comparison.trial import items_of, run_trial
from clockhands.errors import BusyError, DataError, UsageError
from clockhands.locking import hold
from tests.comparison.planted import plan, results

COSTS = {
    name: {"parameters": 1, "steps": 6, "flops": 1, "seconds": 0.1, "changes": {}} for name in ("sinusoidal", "learned")
}
SCRIPT = """
from clockhands.comparison.execution import run_plan
from tests.comparison.planted import plan
if __name__ == "__main__":
    run_plan(plan(), {out!r})
"""


def test_a_trial_measures_what_it_says(tmp_path: Path) -> None:
    made = plan(target=100.0, inside=["loudness"])
    one = run_trial(*task(Results(made, COSTS), "sinusoidal", 1, tmp_path, 1, False).arguments())
    assert one["status"] == "finished" and one["steps"] == 6
    assert len(one["items"]) == 20 and items_of(one).mean() == pytest.approx(one["scores"]["exact"])
    assert one["curve"][-1][0] == 6 and one["curve"][-1][2] > 0
    assert one["reached"]["step"] == 4
    assert one["inside"]["before"].keys() == one["inside"]["after"].keys() == {"word over position", "position's share"}
    assert one["peak_mib"] > 10 and one["parameters"] > 1000
    assert not (tmp_path / "running" / "0-1").exists()
    again = run_trial(*task(Results(made, COSTS), "sinusoidal", 1, tmp_path, 1, True).arguments())
    assert again["curve"] == one["curve"] and again["items"] == one["items"]
    assert (tmp_path / "running" / "0-1" / "model.safetensors").is_file()
    assert not list((tmp_path / "running" / "0-1" / "checkpoints").iterdir()), "no time is spent on what nobody reads"


def test_a_trial_keeps_the_weights_that_it_begins_with(tmp_path: Path) -> None:
    """Drawing by name, which pairs the seeds, must not draw over them."""
    arguments = list(task(Results(plan(), COSTS), "sinusoidal", 1, tmp_path, 1, True).arguments())
    first = run_trial(*arguments)
    base = shutil.copytree(arguments[6], tmp_path / "base")
    training = {**arguments[0]["training"], "begin_from": str(base), "learning_rate": 1e-12, "max_steps": 1}
    again = run_trial({**arguments[0], "training": training}, *arguments[1:])
    assert again["status"] == "finished"
    assert again["items"] == first["items"] and again["curve"][-1][2] == pytest.approx(first["curve"][-1][2], rel=1e-4)


def test_a_run_that_diverges_and_one_that_fails_are_results(tmp_path: Path) -> None:
    wild = plan(vary={"training.learning_rate": [0.01, 1e30]}, metric="loss")
    names = [variant.name for variant in wild.variants]
    costs = dict(zip(names, COSTS.values(), strict=True))
    one = run_trial(*task(Results(wild, costs), names[1], 1, tmp_path, 1, False).arguments())
    assert one["status"] == "diverged" and "training stopped" in one["error"]
    arguments = list(task(Results(wild, costs), names[0], 1, tmp_path, 1, False).arguments())
    arguments[0] = {**arguments[0], "data": {"corpus": "text", "train": str(tmp_path / "none.txt")}}
    failed = run_trial(*arguments)
    assert failed["status"] == "failed" and failed["error"]


def test_killed_and_continued_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    script = tmp_path / "go.py"
    script.write_text(SCRIPT.format(out=str(out)), "utf8")
    root = Path(__file__).parent.parent.parent
    child = subprocess.Popen(
        [sys.executable, str(script)], cwd=root, env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    )
    kept = _first_line(out / RESULTS, child)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with (out / RESULTS).open("a", encoding="utf8") as stream:
        stream.write('{"variant": "sinusoidal", "se')  # what a crash may leave
    ended = {(one["variant"], one["seed"]) for one in read_results(out).trials}
    begun: list[tuple[str, int]] = []

    def watch(event: str, what: object) -> None:
        if event == "begin":
            begun.append((what.variant, what.seed))  # type: ignore[attr-defined]

    found = run_plan(plan(), out, watch=watch)
    assert ended and not ended & set(begun), "what had ended is not run again"
    assert sorted((one["variant"], one["seed"]) for one in found.trials) == sorted(plan().trials)
    assert {one["status"] for one in found.trials} == {"finished"}
    assert (out / RESULTS).read_text("utf8").splitlines()[0] == kept
    begun.clear()
    assert run_plan(plan(), out, watch=watch).trials == found.trials and not begun
    with pytest.raises(UsageError, match=r"holds the results of another plan \(other: budget\)"):
        run_plan(plan(budget={"steps": 9}), out)
    assert len(read_results(out).trials) == 4, "nothing is lost by the refusal"


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

    with hold(tmp_path / "out"):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    assert len(found) == 1 and f"out is in use: process {os.getpid()} on " in found[0]
    assert not (tmp_path / "out").exists()


def test_a_trial_that_another_process_runs_is_no_result(tmp_path: Path) -> None:
    arguments = task(Results(plan(), COSTS), "sinusoidal", 1, tmp_path, 1, False).arguments()
    found: list[type[Exception]] = []

    def another() -> None:
        try:
            run_trial(*arguments)
        except BusyError as fault:
            found.append(type(fault))

    with hold(Path(arguments[6])):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    assert found == [BusyError]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf8")
    with pytest.raises(UsageError, match="exists and holds no comparison; choose another folder"):
        run_plan(plan(), tmp_path)
    with pytest.raises(DataError, match="holds no comparison that can be read"):
        read_results(tmp_path)


def test_more_seeds_go_on_in_the_same_folder(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    assert store.open(plan(), None) is None
    opened = store.open(plan(), COSTS)
    assert opened is not None and len(opened.missing) == 4
    store.add({"variant": "learned", "seed": 1, "status": "finished"})
    more = store.open(plan(seeds=3), COSTS)
    assert more is not None and len(more.missing) == 5 and ("learned", 1) not in more.missing


def test_results_are_one_document_and_back() -> None:
    made = results(seeds=2)
    assert Results.from_json(made.to_json()) == made
    older = replace(made, fingerprint="0123")
    assert "plan:0123" in Results.from_json(older.to_json()).signature, "a new option changes no old signature"
    assert json.loads(made.to_json())["signature"] == made.signature
    with pytest.raises(DataError, match="no results of a comparison"):
        Results.from_json("{}")


def test_workers_are_counted() -> None:
    with pytest.raises(UsageError, match="workers is 0; it must be 1 or more"):
        run_plan_with(workers=0)
    with pytest.raises(UsageError, match="given out by Ray alone"):
        run_plan_with(gpus=0.5)


def run_plan_with(**settings: float) -> None:
    from clockhands.comparison.execution import _workers

    _workers(**{"workers": 1, "threads": 1, "on": None, "gpus": 0.0, **settings})  # type: ignore[arg-type]
