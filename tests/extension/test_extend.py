"""Whatever stops ``extend``, it goes on to the same end; and other weights under the same name begin anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from clockhands.errors import ClockhandsWarning, UsageError
from clockhands.extension import ExtensionPlan, Tuning, extend
from clockhands.findings import Findings
from clockhands.models import open_language_model
from tests.runs.tiny import make_config, save_model

ROOT = Path(__file__).parents[2]
TEXT = "The clock has many hands, and each turns at its own speed. " * 60
PLAN = ExtensionPlan([TEXT], "text", 64, 128, texts=8, items=10, evaluations=2, command="c")


class Stop(Exception):
    """What stops a command in these tests."""


def do(folder: Path, out: Path, *, stop: bool = False) -> Findings:
    def write_page(findings: Findings) -> None:
        if stop:
            raise Stop

    return extend(open_language_model(folder), PLAN, out, write_page=write_page)


def test_other_weights_under_the_same_name_begin_anew(tmp_path: Path) -> None:
    """Stopped after everything was measured, so every result is kept when the weights change."""
    folder = save_model(tmp_path / "model", "llama")
    first = do(folder, tmp_path / "first")
    with pytest.raises(Stop):
        do(folder, tmp_path / "out", stop=True)
    assert (tmp_path / "out" / ".measured.json").is_file() and not (tmp_path / "out" / "config.json").exists()
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(make_config("llama", initializer_range=0.2)).save_pretrained(folder)
    fresh, again = do(folder, tmp_path / "fresh"), do(folder, tmp_path / "out")
    assert [item.value for item in again] == [item.value for item in fresh]
    assert [item.value for item in again] != [item.value for item in first]
    assert not (tmp_path / "out" / ".measured.json").exists()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_training_in_16_bits_is_warned_of(dtype: torch.dtype, tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path / "model", "llama"), dtype=dtype)
    plan = replace(PLAN, documents=["short"], tuning=Tuning(1))
    with warnings.catch_warnings(record=True) as caught, pytest.raises(UsageError, match="tokens"):
        extend(model, plan, tmp_path / "out")
    said = [str(warning.message) for warning in caught if issubclass(warning.category, ClockhandsWarning)]
    told = "the weights are trained in bfloat16, where most small steps change nothing; give --dtype float32"
    assert said == ([told] if dtype == torch.bfloat16 else [])


def kill(job: dict[str, Any], folder: Path, seconds: float) -> dict[str, Any]:
    """In a process of its own, which imports everything once and forks for every kill."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "tests.extension.killing", str(folder)], input=json.dumps(job), env=environment,
        cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_killed_at_its_files_it_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """Results are kept in the first half of the changes; then checkpoint, model, card and page are written."""
    shares = [*(n / 20 for n in range(1, 10)), *(0.5 + n / 80 for n in range(41))]
    kills = [[share, "middle" if n % 2 else "before"] for n, share in enumerate(shares)]
    found = kill({"steps": 4, "kills": kills}, tmp_path, 7200)
    assert found["faults"] == []
    assert found["struck"] == len(kills) and found["changes"] > 200
