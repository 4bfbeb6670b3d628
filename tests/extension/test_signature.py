"""Results are known by everything that they depend on: another weight, base, text or setting is another signature."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from clockhands.extension import make_signature
from clockhands.extension.signature import hash_weights
from clockhands.models import open_language_model
from tests.runs.tiny import save_model, save_own_model

STREAM = np.arange(50)


def sign(folder: Path, stream: Any = STREAM, weights: str | None = None, **settings: Any) -> str:
    return make_signature(open_language_model(folder, weights=weights), stream, settings)


def change_a_weight(folder: Path) -> None:
    file = folder / "model.safetensors"
    state = {name: weight.clone() for name, weight in load_file(file).items()}
    state["model.norm.weight"][0] += 1e-3
    save_file(state, file, metadata={"format": "pt"})


def test_each_thing_that_results_depend_on_changes_the_signature(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", "llama")
    before = sign(folder, trained=32)
    assert sign(folder, trained=32) == before
    assert sign(folder, trained=64) != before
    assert sign(folder, STREAM + 1, trained=32) != before
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 500.0
    (folder / "config.json").write_text(json.dumps(config))
    other = sign(folder, trained=32)
    assert other != before
    change_a_weight(folder)
    assert sign(folder, trained=32) != other


@pytest.mark.parametrize("weights", [None, "streamed"])
def test_a_model_that_was_moved_keeps_its_signature(weights: str | None, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", "llama")
    before = sign(folder, weights=weights)
    moved = folder.rename(tmp_path / "moved")
    assert sign(moved, weights=weights) == before
    assert sign(save_model(tmp_path / "other", "llama", rms_norm_eps=1e-3), weights=weights) != before


def test_weights_that_stay_in_their_files_count_too(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", "llama")
    before = sign(folder, weights="streamed")
    assert sign(folder, weights="streamed") == before
    change_a_weight(folder)
    assert sign(folder, weights="streamed") != before


def test_weights_in_bfloat16_can_be_hashed(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", "llama")
    model = open_language_model(folder, dtype=torch.bfloat16)
    assert make_signature(model, STREAM, {}) != sign(folder)


def test_a_field_that_a_later_version_adds_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_language_model(save_own_model(tmp_path / "ours", "rope"))
    before = hash_weights(model)
    make = model.model.config.transformer
    monkeypatch.setattr(model.model.config, "transformer", {**make, "norm_eps": 0.5})
    assert hash_weights(model) != before
    monkeypatch.setattr(model.model.config, "transformer", {**make, "added": 1})
    assert hash_weights(model) != before, "with another value than its default it counts"
    monkeypatch.setattr(type(model.model.config), "to_json_string", _add_field(type(model.model.config)))
    monkeypatch.setattr(model.model.config, "transformer", make)
    assert hash_weights(model) == before


def _add_field(kind: Any) -> Any:
    """Return how a configuration would be written by a version with one more field."""
    write = kind.to_json_string

    def write_more(self: Any, use_diff: bool = True) -> str:
        raw = json.loads(write(self, use_diff=use_diff))
        return json.dumps({**raw, "transformer": {**(raw.get("transformer") or {}), "added": 0}})

    return write_more
