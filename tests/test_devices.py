"""A device that is not in the machine is refused with one message, by every door and before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clockhands.cli import main
from clockhands.devices import open_device
from clockhands.errors import UsageError
from clockhands.runs import Run, open_run
from tests.generation.conftest import translator

__all__ = ["translator"]


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the GPU of a machine that has one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_a_device_that_is_there_is_opened() -> None:
    assert open_device("cpu", "--device") == torch.device("cpu")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "--device is 'cuda', but there is no CUDA device: PyTorch "),
        ("cuda:1", "--device is 'cuda:1', but there is no CUDA device: PyTorch "),
        ("gpu", "--device is 'gpu', which PyTorch does not know; use cpu, cuda or cuda:1"),
        ("meta", "--device is 'meta', which cannot be used here: "),
    ],
)
def test_another_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        open_device(name, "--device")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    "command",
    [
        "train --corpus roles --preset tiny --set training.max_steps=1 training.device=cuda --out made",
        "compare --corpus roles --vary position.scheme=rope,none --steps 1 --set training.device=cuda --out made",
        "translate {run} --device cuda Tom",
        "generate {run} --device cuda",
        "evaluate {run} --device cuda",
        "inspect {run} --device cuda --out made",
        "check {run} --device cuda",
    ],
)
def test_every_command_refuses_a_gpu_that_is_not_there(
    command: str, translator: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.format(run=translator.path).split()) == 2
    printed = capsys.readouterr()
    asked = "training.device" if "training" in command else "--device"
    assert printed.err.startswith(f"clockhands: {asked} is 'cuda', but there is no CUDA device: ")
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_gpu")
def test_python_is_told_the_same(translator: Run) -> None:
    with pytest.raises(UsageError, match="device is 'cuda', but there is no CUDA device"):
        open_run(translator, device="cuda")
