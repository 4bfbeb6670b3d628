"""Which reader a file gets, and what no reader takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import CheckpointError, UsageError
from clockhands.explanation import read_positions
from tests.explanation.test_llama_cpp import write

LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
"""Without its length, of which transformers remarks something, in a log."""
PARAMS = {"dim": 512, "n_layers": 2, "n_heads": 8, "rope_theta": 1e6}
MEGATRON = "--num-layers 2 --hidden-size 512 --num-attention-heads 8"


def test_each_format_is_found_by_name_or_content(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "renamed.json").write_text(json.dumps(PARAMS))
    (tmp_path / "mistral").mkdir()
    (tmp_path / "mistral/params.json").write_text(json.dumps(PARAMS))
    (tmp_path / "train.sh").write_text(MEGATRON)
    write(tmp_path / "model.gguf")
    programs = {
        tmp_path: "transformers 5", tmp_path / "config.json": "transformers 5", tmp_path / "renamed.json": "Mistral",
        tmp_path / "mistral": "Mistral", tmp_path / "train.sh": "Megatron", tmp_path / "model.gguf": "llama.cpp",
    }  # fmt: skip
    assert {path: read_positions(path).program for path in programs} == programs


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    for path, told in (
        (tmp_path / "list.json", "not a table"),
        (tmp_path / "bytes.txt", "cannot read the arguments .*: it is not UTF-8"),
        (tmp_path / "none", "there is no folder"),
        (tmp_path, "no config.json"),
    ):
        with pytest.raises(CheckpointError, match=told):
            read_positions(path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(UsageError, match="transformers5"):
        read_positions(tmp_path, "transformers6")
    (tmp_path / "own.json").write_text(json.dumps({"model_type": "clockhands", "transformer": {}}))
    for name in ("bytes.txt", "own.json"):  # of a run of this project they were passed over
        with pytest.raises(UsageError, match="overrides change"):
            read_positions(tmp_path / name, overrides="{}")


@pytest.mark.parametrize(
    ("name", "content", "left_out"),
    [
        ("config.json", json.dumps(LLAMA), {"torch"}),
        (
            "config.json",
            json.dumps({**LLAMA, "original_max_position_embeddings": 8192, "rope_scaling": LLAMA3}),
            {"torch"},
        ),
        ("params.json", json.dumps(PARAMS), {"torch", "transformers", "numpy"}),
        ("train.sh", f"{MEGATRON} --position-embedding-type rope", {"torch", "transformers", "numpy"}),
    ],
)
def test_the_command_imports_no_more_than_it_needs(tmp_path: Path, name: str, content: str, left_out: set[str]) -> None:
    (tmp_path / name).write_text(content)
    code = (
        f"import sys; sys.argv = ['clockhands']; from clockhands.cli import main; "
        f"main(['explain', {str(tmp_path / name)!r}]); print([name for name in {left_out!r} if sys.modules.get(name)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]" and "rotates all 64 channels" in done.stdout
    assert done.stderr == ""
