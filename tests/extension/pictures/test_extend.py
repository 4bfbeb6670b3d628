"""A larger grid is written as transformers opens it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageClassification

from clockhands.extension.pictures import PicturePlan, extend_grid, judge, lengthen, open_picture_model, read_pictures
from tests.extension.pictures.tiny import SIDE, save_pictures, save_vit


def test_the_chosen_grid_is_written_and_opens_in_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A model of a second's training passes no guard; what is tried here is the writing.
    monkeypatch.setattr(judge, "_choose", lambda judged: judged.grids[2])
    model = open_picture_model(save_vit(tmp_path / "vit", steps=30))
    pictures = read_pictures(save_pictures(tmp_path / "some"), model, 100)
    folder = tmp_path / "larger"
    findings = extend_grid(model, PicturePlan(pictures, 2 * SIDE), folder, write_page=lambda findings: None)
    assert "written" in findings.facts and (folder / "README.md").is_file()
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    assert processor["size"] == {"height": 2 * SIDE, "width": 2 * SIDE}
    way = next(grid for grid in findings.items[1].table.rows if grid[-1] == "yes, chosen")[0]
    pixels = torch.randn(2, 3, 2 * SIDE, 2 * SIDE)
    with torch.inference_mode():
        found = AutoModelForImageClassification.from_pretrained(folder)(pixel_values=pixels).logits
    torch.testing.assert_close(found, lengthen(model, 2 * SIDE, str(way)).compute_logits(pixels))
