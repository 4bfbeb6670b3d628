"""Every architecture of transformers is inspected, or refused in one sentence that says why, without a traceback."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

import clockhands
from clockhands.checking.models.tiny import Build, architectures, build_model, tiny_config
from clockhands.cli import main
from clockhands.errors import UsageError
from clockhands.findings import Findings

INSPECTED = {
    "llama4_text:causal": ({}, 20, ()),
    "xlm:masked": ({}, 20, ()),
    "flaubert:masked": ({}, 20, ()),
    "nystromformer:masked": ({}, 20, ()),
    "big_bird:masked": ({"num_random_blocks": 1}, 64, ("logits.layers", "heads.distance")),
}
"""Builds that ended in a traceback, with settings, a length, and measures that are left out because their attention is
computed in blocks or from landmarks."""

REFUSED = {
    "mamba2:causal": "no attention was seen in Mamba2Model: it has none",
    "canine:masked": "the layers of a CanineModel do not give one state per token",
    "vit:masked": "reads images, not text: its ViTModel is given pixel_values",
    "whisper:masked": "reads sound, not text: its WhisperEncoder is given input_features",
    "blip-2:causal": "reads images, not text",
    "reformer:masked": "gives 24 states for 20 tokens",
}
"""Builds that cannot be inspected, with the reason that is given."""


@functools.cache
def _text_builds() -> frozenset[str]:
    return frozenset(build.name for build in architectures())


def _saved(build: Build, folder: Path, **settings: Any) -> None:
    """Save a tiny model as people do: a text model with its output layer."""
    config = tiny_config(build)
    for name, value in settings.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    headed = build.name in _text_builds()
    model = build_model(config, build.task) if headed else AutoModel.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)


def _inspect(folder: Path, length: int, *more: str) -> int:
    """What the command line ends with, for token ids that every tiny vocabulary has."""
    np.save(folder / "ids.npy", np.random.default_rng(0).integers(11, 100, (8, length)))
    return main(["inspect", str(folder), "--ids", str(folder / "ids.npy"), "--json", "--threads", "1", *more])


def _build(name: str) -> Build:
    kind: Any = name.partition(":")[2]
    return Build(name.partition(":")[0], kind)


@pytest.mark.parametrize("name", sorted(INSPECTED))
def test_families_that_ended_in_a_traceback(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings, length, left_out = INSPECTED[name]
    _saved(_build(name), tmp_path, **settings)
    assert _inspect(tmp_path, length, "--no-control") == 0
    found = Findings.from_json(capsys.readouterr().out)
    for measure in ("logits.layers", "heads.distance"):
        assert (found[measure].light == "skip") == (measure in left_out)
    if left_out:
        assert "is not computed as logits of every token for every token" in found["logits.layers"].verdict
    else:
        assert float(str(found["logits.layers"].details["error"])) < 1e-5
    for measure in ("survival", "survival.share", "cause"):
        assert found[measure].light != "skip"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_families_that_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _saved(_build(name), tmp_path)
    capsys.readouterr()  # the progress bar of saving, which only the first test of a process shows
    assert _inspect(tmp_path, 20) == 1
    printed = capsys.readouterr().err
    assert REFUSED[name] in printed
    assert printed.strip().count("\n") == 0
    assert "Traceback" not in printed


class Own(nn.Module):
    """A module that is no model of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(97, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table(x)


@pytest.mark.parametrize("model", [Own(), nn.Linear(3, 3)])
def test_a_module_of_ones_own_is_told_what_it_needs(model: nn.Module) -> None:
    with pytest.raises(
        UsageError, match=r"cannot read a (Own|Linear).*PreTrainedModel.*get_input_embeddings.*hidden_states"
    ):
        clockhands.inspect(model, ids=torch.randint(3, 90, (8, 16)))


def _every() -> list[Build]:
    """Every text architecture with its variants, and every other that ``AutoModel`` opens."""
    text = list(architectures())
    known = {build.type for build in text}
    return [*text, *(Build(name, "causal") for name in sorted(MODEL_MAPPING_NAMES) if name not in known)]


LARGEST = 30_000_000
"""Parameters of the largest model that is built here: some configurations cannot be shrunk by the rules."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Collect every architecture only where slow tests run: they are some thirteen hundred."""
    if metafunc.function is test_no_architecture_ends_in_a_traceback:
        builds = _every() if metafunc.config.getoption("--slow") else []
        metafunc.parametrize("build", builds, ids=lambda build: build.name)


@pytest.mark.slow
@pytest.mark.parametrize("length", [24, 120])
def test_no_architecture_ends_in_a_traceback(
    build: Build, length: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``main`` catches what this project raises and nothing else, so that a raw exception fails the test."""
    try:
        with torch.device("meta"):
            size = sum(weight.numel() for weight in AutoModel.from_config(tiny_config(build)).parameters())
        if size < LARGEST:
            _saved(build, tmp_path)
    except Exception as fault:  # what the shrinking rules cannot build is no fault of inspect
        pytest.skip(f"it cannot be built: {type(fault).__name__}")
    if size >= LARGEST:
        pytest.skip("the rules do not shrink it")
    capsys.readouterr()
    code = _inspect(tmp_path, length)
    printed = capsys.readouterr()
    if code:
        assert code in (1, 2)
        assert "clockhands" in printed.err.splitlines()[-1]
        assert "Traceback" not in printed.err
        return
    for item in json.loads(printed.out)["items"]:
        assert item["verdict"]
