"""Killed anywhere, a run goes on to the same end bit for bit: weights, record, checkpoints, nothing left over.

What is compared is every file of the run's folder; of ``metrics.jsonl`` all but the speed, which is another each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LAST = {"average": "last", "max_steps": 12, "save_steps": 5, "eval_steps": 5}
BEST = {"average": "best", "keep": 1, "max_steps": 12, "save_steps": 3, "eval_steps": 3}
# At this rate the loss falls and rises: the weights that are exported are not those of the last step.
LOWEST = {**LAST, "average": "none", "export": "lowest", "keep": 1, "eval_steps": 3, "save_steps": None}
LOWEST |= {"learning_rate": 1.0, "explosion": 0.0}
# 12 steps end in the middle of an epoch of 8. From the first file on to the last, which is the record that it is over.
SAMPLES = {
    "last": (LAST, [[0.03, "middle"], [0.8, "before"], [1.0, "before"]]),
    "lowest": (LOWEST, [[0.4, "middle"], [0.95, "before"]]),
}


def run(jobs: list[dict[str, Any]], folder: Path, seconds: float) -> list[dict[str, Any]]:
    """In a process of its own, which imports everything once and forks for every kill."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tests.training.killing", str(folder)]
    done = subprocess.run(
        command, input=json.dumps(jobs), env=environment, cwd=ROOT, capture_output=True, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_killed_at_a_sample_of_its_files(tmp_path: Path) -> None:
    jobs = [{"name": name, "training": training, "kills": [sample]} for name, (training, sample) in SAMPLES.items()]
    for found in run(jobs, tmp_path, 600):
        assert found["faults"] == []
        assert found["struck"] == found["runs"] == len(SAMPLES[found["job"]][1])


@pytest.mark.slow
@pytest.mark.parametrize("training", [LAST, BEST, LOWEST], ids=["the last", "the best", "the lowest"])
def test_killed_at_every_file_at_random_moments_and_while_it_goes_on(tmp_path: Path, training: dict[str, Any]) -> None:
    job = {"name": "whole", "training": training, "seed": 1, "kills": ["all", "random 50", "thrice 20"]}
    files, moments, thrice = run([job], tmp_path, 7200)
    assert [found["faults"] for found in (files, moments, thrice)] == [[], [], []]
    assert files["struck"] == files["runs"] > 100
    assert thrice["struck"] > thrice["runs"], "some were killed more than once"
