"""An extended model is a folder that plain transformers opens, and computes there what was judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from clockhands.errors import CheckpointError, UsageError
from clockhands.extension import apply, list_engine_lines, list_methods, write, write_extended
from clockhands.runs import open_language_model
from tests.runs.tiny import LENGTH, save_model

LONG = 4 * LENGTH


def make_ids() -> torch.Tensor:
    return torch.randint(3, 99, (1, LONG), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("kind", "name"), [("llama", "yarn"), ("llama", "dynamic"), ("llama", "ntk-beyond"), ("gpt2", "tiled")]
)
def test_transformers_opens_what_was_written(kind: str, name: str, tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path / "model", kind))
    (method,) = (each for each in list_methods(model, LENGTH, LONG) if each.name == name)
    assert write_extended(model, method, LONG, tmp_path / "longer") < 1e-5
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "longer").eval()
    with apply(model, method) as extended, torch.inference_mode():
        expected = extended.compute_logits(make_ids())
        torch.testing.assert_close(theirs(input_ids=make_ids()).logits, expected, atol=1e-5, rtol=0)
    assert not list((tmp_path / "longer").glob(".writing*"))
    with pytest.raises(UsageError, match="holds a model already; name another folder"):
        write_extended(model, method, LONG, tmp_path / "longer")
    if kind == "llama":
        old = json.loads((tmp_path / "longer" / "config.transformers4.json").read_text())
        assert "rope_parameters" not in old and old["rope_scaling"]["factor"] == 4.0
        assert AutoConfig.from_pretrained(tmp_path / "longer").max_position_embeddings == (
            LENGTH if name == "dynamic" else LONG
        )


def test_each_program_is_told_or_cannot_be(tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path / "model", "llama"))
    methods = {method.name: method for method in list_methods(model, LENGTH, LONG)}
    write_extended(model, methods["yarn"], LONG, tmp_path / "yarn")
    lines = dict(list_engine_lines(tmp_path / "yarn"))
    assert lines["vLLM"].startswith('--hf-overrides \'{"rope_parameters"') and "--max-model-len 128" in lines["vLLM"]
    assert lines["SGLang"].startswith("--json-model-override-args") and "--context-length 128" in lines["SGLang"]
    assert "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32" in lines["llama.cpp"]
    assert "llama.rope.scaling.type = yarn" in lines["GGUF"]
    write_extended(model, methods["by-parts-beyond"], LONG, tmp_path / "longrope")
    lines = dict(list_engine_lines(tmp_path / "longrope"))
    assert lines["llama.cpp"].startswith("cannot be told: llama.cpp takes the factors of LongRoPE from tensors")


def test_a_folder_is_cleared_of_what_was_half_written_and_of_nothing_else(tmp_path: Path) -> None:
    """Below ``--out runs`` another process may be training."""
    own = [tmp_path / ".measured.json.1f.writing", tmp_path / "report" / "figures" / ".loss.svg.2f.writing"]
    others = [tmp_path / "ours" / ".model.safetensors.3f.writing", tmp_path / ".odd.writing" / "kept"]
    for path in (*own, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with write.stage(tmp_path) as place:
        assert place.is_dir() and not any(path.exists() for path in own)
    assert all(path.exists() for path in others)


def test_what_does_not_compute_the_same_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_language_model(save_model(tmp_path / "model", "llama"))
    yarn = next(each for each in list_methods(model, LENGTH, LONG) if each.name == "yarn")
    monkeypatch.setattr(write, "change_foreign_positions", lambda *given: None)
    with pytest.raises(CheckpointError, match=r"differs by .* in its logits from what was judged; nothing was kept"):
        write_extended(model, yarn, LONG, tmp_path / "longer")
    assert not list((tmp_path / "longer").iterdir())
