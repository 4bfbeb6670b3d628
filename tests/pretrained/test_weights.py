"""Weights of others: their size from the header, numbers that are none, and files that are not read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from clockhands.errors import CheckpointError
from clockhands.pretrained.weights import check_fits, count_bytes, list_weight_files, refuse_not_finite


def test_the_size_is_that_of_float32_whatever_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(3, 5, dtype=torch.float16), "b": torch.zeros(7)}, path)
    assert count_bytes(path) == 4 * (15 + 7)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CheckpointError, match="is no safetensors file, or a damaged one"):
        count_bytes(path)


def test_a_model_needs_a_fifth_more_than_its_weights() -> None:
    check_fits(100, "x", 120)
    with pytest.raises(CheckpointError, match="x needs"):
        check_fits(100, "x", 119)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_weight_that_is_no_number_is_named_and_counted(value: float) -> None:
    good, bad = torch.ones(4), torch.ones(2, 3)
    bad[1, 2] = value
    refuse_not_finite([("good", good), ("whole", torch.ones(2, dtype=torch.int64))], "x")
    with pytest.raises(CheckpointError, match="1 of 6 numbers of bad are NaN or infinite"):
        refuse_not_finite([("good", good), ("bad", bad)], "x")


def test_an_index_leads_to_files_beside_it_only(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "../other.safetensors"}}')
    with pytest.raises(CheckpointError, match="only safetensors files beside it"):
        list_weight_files(tmp_path, {})
    save_file({"a": torch.zeros(1)}, tmp_path / "part-1.safetensors")
    index.write_text('{"weight_map": {"a": "part-1.safetensors"}}')
    assert list_weight_files(tmp_path, {}) == [tmp_path / "part-1.safetensors"]


def test_pickles_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"only as pickle \(pytorch_model\.bin\)"):
        list_weight_files(tmp_path, {})


@pytest.mark.parametrize("target", ["../part.safetensors", "/etc/part.safetensors", "part.bin", 3])
def test_an_index_names_safetensors_beside_it_and_nothing_else(target: Any, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": target}}))
    with pytest.raises(CheckpointError, match=r"names '.*' for weights; only safetensors|it names no files"):
        list_weight_files(tmp_path, {})


def test_what_is_not_finite_is_named_and_what_is_large_is_not(tmp_path: Path) -> None:
    """The sum of these large numbers would be infinite, and none of them is."""
    large = torch.full((4,), torch.finfo(torch.float32).max)
    fine = {"large": large, "half": torch.full((9,), 60_000.0, dtype=torch.float16), "ids": torch.arange(3)}
    fine |= {"none": torch.zeros(0), "eight": torch.ones(2).to(torch.float8_e4m3fn), "hollow": large.to("meta")}
    refuse_not_finite(fine.items(), tmp_path)
    for value in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(CheckpointError, match="2 of 4 numbers of bad are NaN or infinite"):
            refuse_not_finite({**fine, "bad": torch.tensor([1.0, value, value, 0.0])}.items(), tmp_path)
