"""Tokenizers of others: only classes that are tokenizers are called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clockhands.errors import CheckpointError
from clockhands.pretrained import load_tokenizer


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_a_class_that_is_no_tokenizer_is_refused_by_either_file(file: str, tmp_path: Path) -> None:
    """transformers would call whatever class of its own is named there."""
    for name, text in (("tokenizer_config.json", {}), ("config.json", {"model_type": "bert"})):
        settings = {**text, "tokenizer_class": "GenerationConfig"} if name == file else text
        (tmp_path / name).write_text(json.dumps(settings), "utf8")
    with pytest.raises(CheckpointError, match="tokenizer_class = 'GenerationConfig', which is no tokenizer"):
        load_tokenizer(tmp_path)


def test_the_class_of_a_tokenizer_must_be_a_name(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": 3}', "utf8")
    with pytest.raises(CheckpointError, match="tokenizer_class = 3; it must be the name of a class"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("length", ["x", [1], True, {"a": 1}])
def test_the_longest_text_of_a_tokenizer_must_be_a_number(length: object, tmp_path: Path) -> None:
    """transformers compares whatever stands there with a length, at the first text."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}), "utf8")
    with pytest.raises(CheckpointError, match=r"sets model_max_length = .* in tokenizer_config.json; it is a number"):
        load_tokenizer(tmp_path)
