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

from clockhands.comparison.execution import make_job, make_workers, run_plan
from clockhands.comparison.folder import RESULTS, ComparisonFolder, read_comparison
from clockhands.comparison.results import Comparison, Cost
from clockhands.comparison.trial import Trial
from clockhands.comparison.trial_runner import run_trial
from clockhands.errors import BusyError, DataError, UsageError
from clockhands.locking import hold
from tests.comparison.planted import Events, plan, results

COSTS = {name: Cost(parameters=1, steps=6, flops=1, seconds=0.1, changes={}) for name in ("sinusoidal", "learned")}
SCRIPT = """
from clockhands.comparison.execution import run_plan
from tests.comparison.planted import plan
if __name__ == "__main__":
    run_plan(plan(), {out!r})
"""


def test_a_trial_measures_what_it_says(tmp_path: Path) -> None:
    made = plan(target=100.0, inside=["loudness"])
    trial = run_trial(make_job(Comparison(made, COSTS), "sinusoidal", 1, tmp_path, 1, False))
    assert trial.finished and trial.steps == 6
    assert len(trial.items) == 20 and trial.items_N.mean() == pytest.approx(trial.scores["exact"])
    assert trial.curve[-1].step == 6 and trial.curve[-1].validation_loss > 0
    assert trial.reached.step == 4
    assert trial.inside.before.keys() == trial.inside.after.keys() == {"word over position", "position's share"}
    assert trial.peak_mib > 10 and trial.parameters > 1000
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial
    assert not (tmp_path / "running" / "0-1").exists()
    again = run_trial(make_job(Comparison(made, COSTS), "sinusoidal", 1, tmp_path, 1, True))
    assert again.curve == trial.curve and again.items == trial.items
    assert (tmp_path / "running" / "0-1" / "model.safetensors").is_file()
    assert not list((tmp_path / "running" / "0-1" / "checkpoints").iterdir()), "no time is spent on what nobody reads"


def test_a_trial_keeps_the_weights_that_it_begins_with(tmp_path: Path) -> None:
    """Drawing by name, which pairs the seeds, must not draw over them."""
    job = make_job(Comparison(plan(), COSTS), "sinusoidal", 1, tmp_path, 1, True)
    first = run_trial(job)
    base = shutil.copytree(job.folder, tmp_path / "base")
    training = {**job.tables["training"], "begin_from": str(base), "learning_rate": 1e-12, "max_steps": 1}
    again = run_trial(replace(job, tables={**job.tables, "training": training}))
    assert again.finished and again.items == first.items
    assert again.curve[-1].validation_loss == pytest.approx(first.curve[-1].validation_loss, rel=1e-4)


def test_a_run_that_diverges_and_one_that_fails_are_results(tmp_path: Path) -> None:
    wild = plan(vary={"training.learning_rate": [0.01, 1e30]}, metric="loss")
    names = [variant.name for variant in wild.variants]
    costs = dict(zip(names, COSTS.values(), strict=True))
    diverged = run_trial(make_job(Comparison(wild, costs), names[1], 1, tmp_path, 1, False))
    assert diverged.status == "diverged" and "training stopped" in diverged.error
    assert Trial.from_dict(diverged.to_dict()) == diverged
    job = make_job(Comparison(wild, costs), names[0], 1, tmp_path, 1, False)
    failed = run_trial(replace(job, tables={**job.tables, "data": {"corpus": "text", "train": str(tmp_path / "no")}}))
    assert failed.status == "failed" and failed.error


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
    progress = Events()
    comparison = run_plan(plan(), out, progress=progress)
    assert ended and not ended & set(progress.begun), "what had ended is not run again"
    assert sorted(trial.key for trial in comparison.trials) == sorted(plan().trials)
    assert {trial.status for trial in comparison.trials} == {"finished"}
    assert (out / RESULTS).read_text("utf8").splitlines()[0] == kept
    again = Events()
    assert run_plan(plan(), out, progress=again).trials == comparison.trials and not again.begun
    with pytest.raises(UsageError, match=r"holds the results of another plan \(other: budget\)"):
        run_plan(plan(budget={"steps": 9}), out)
    assert len(read_comparison(out).trials) == 4, "nothing is lost by the refusal"


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
    job = make_job(Comparison(plan(), COSTS), "sinusoidal", 1, tmp_path, 1, False)
    found: list[type[Exception]] = []

    def another() -> None:
        try:
            run_trial(job)
        except BusyError as fault:
            found.append(type(fault))

    with hold(Path(job.folder)):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    assert found == [BusyError]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf8")
    with pytest.raises(UsageError, match="exists and holds no comparison; choose another folder"):
        run_plan(plan(), tmp_path)
    with pytest.raises(DataError, match="holds no comparison that can be read"):
        read_comparison(tmp_path)


def test_more_seeds_go_on_in_the_same_folder(tmp_path: Path) -> None:
    store = ComparisonFolder(tmp_path / "new")
    assert store.open(plan(), None) is None
    opened = store.open(plan(), COSTS)
    assert opened is not None and len(opened.missing) == 4
    store.add(Trial("learned", 1, "failed", error="no memory"))
    more = store.open(plan(seeds=3), COSTS)
    assert more is not None and len(more.missing) == 5 and ("learned", 1) not in more.missing


def test_results_are_one_document_and_back() -> None:
    made = results(seeds=2)
    assert Comparison.from_json(made.to_json()) == made
    older = replace(made, fingerprint="0123")
    assert "plan:0123" in Comparison.from_json(older.to_json()).signature, "a new option changes no old signature"
    assert json.loads(made.to_json())["signature"] == made.signature
    with pytest.raises(DataError, match="no results of a comparison"):
        Comparison.from_json("{}")


def test_workers_are_counted() -> None:
    with pytest.raises(UsageError, match="workers is 0; it must be 1 or more"):
        make_workers(workers=0, threads=1, on=None, gpus=0.0)
    with pytest.raises(UsageError, match="given out by Ray alone"):
        make_workers(workers=1, threads=1, on=None, gpus=0.5)
