"""The judgement of larger grids: paired differences, the guard, and what is said where nothing passes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clockhands.comparison.simultaneous import compare_with_baseline
from clockhands.extension.pictures import judge_grids, lengthen, open_picture_model, read_pictures
from clockhands.extension.pictures.findings import describe_grid_choice, make_grid_findings
from clockhands.extension.pictures.judge import JudgedGrid, JudgedGrids, _choose
from clockhands.extension.pictures.reading import prepare, resize
from tests.extension.pictures.tiny import SIDE, save_pictures, save_vit

OWN = np.random.default_rng(0).normal(1.0, 0.2, (60, 1))


def make_grid(way: str, gain: float, cost: float, noise: float = 0.002) -> JudgedGrid:
    drawn = np.random.default_rng(1).normal(0, noise, (2, *OWN.shape))
    drawn -= drawn.mean(1, keepdims=True)  # what is planted is then what the sample shows, whichever tests ran before
    ours = [OWN + change + each for change, each in zip((gain, cost), drawn, strict=True)]
    gained, paid = compare_with_baseline(ours, [OWN, OWN])
    return JudgedGrid(way, float(ours[0].mean()), 0.5, gained, paid)


def judge_made(*grids: JudgedGrid) -> JudgedGrids:
    judged = JudgedGrids(SIDE, 2 * SIDE, 2, float(OWN.mean()), 0.5, grids, None)
    return replace(judged, chosen=_choose(judged))


@pytest.mark.parametrize(
    ("grids", "chosen", "said"),
    [
        ([("interpolated", -0.2, 0.0), ("tiled", -0.3, 0.0)], "tiled", "which is less"),
        ([("interpolated", -0.2, 0.0), ("tiled", -0.3, 0.05)], "interpolated", "which is less"),
        ([("interpolated", 0.2, 0.0), ("tiled", 0.3, 0.05)], None, "1 of 2 larger grids are not shown"),
        ([("interpolated", 0.0, 0.0), ("tiled", 0.3, 0.05)], "interpolated", "not shown to be less"),
        ([("interpolated", -0.2, 0.0, 1.0)], None, "1 of 1 larger grids are not shown"),
    ],
)
def test_the_guard_comes_first_and_worse_than_as_it_is_is_not_chosen(
    grids: list[tuple[str, float, float]], chosen: str | None, said: str
) -> None:
    judged = judge_made(*(make_grid(*grid) for grid in grids))
    assert (judged.chosen and judged.chosen.way) == chosen
    assert said in describe_grid_choice(judged)


def test_losses_are_those_of_the_right_class_at_both_sizes(tmp_path: Path) -> None:
    model = open_picture_model(save_vit(tmp_path / "vit", steps=60))
    pictures = read_pictures(save_pictures(tmp_path / "some"), model, 100)
    judged = judge_grids(model, pictures, 2 * SIDE)
    right = torch.tensor(pictures.classes)
    large, small = pictures.pictures, [resize(picture, SIDE) for picture in pictures.pictures]
    own = F.cross_entropy(model.compute_logits(prepare(model, small)), right)
    assert judged.loss == pytest.approx(float(own), abs=1e-5) and judged.loss < 0.65
    for grid in judged.grids:
        longer = lengthen(model, 2 * SIDE, grid.way)
        loss = F.cross_entropy(longer.compute_logits(prepare(model, large)), right)
        blown = [resize(picture, 2 * SIDE) for picture in small]
        price = F.cross_entropy(longer.compute_logits(prepare(model, blown)), right)
        assert grid.loss == pytest.approx(float(loss), abs=1e-5)
        assert grid.gain.value == pytest.approx(float(loss - own), abs=1e-5)
        assert grid.cost.value == pytest.approx(float(price - own), abs=1e-5)
    first, second = make_grid_findings(judged, pictures, command="", basis={})
    assert "guessing among 2 classes costs 0.693" in first.verdict and "does not know" not in first.verdict
    assert len(second.table.rows) == 4
    assert second.figure is not None
    drawn = [mark for panel in second.figure.panels for mark in panel.marks if mark.kind == "bars"]
    measured = [grid.gain for grid in judged.grids] + [grid.cost for grid in judged.grids]
    for bars, differences in zip(drawn, (measured[:4], measured[4:]), strict=True):
        assert bars.y == tuple(difference.value for difference in differences)
        assert (bars.low, bars.high) == tuple(
            zip(*((difference.low, difference.high) for difference in differences), strict=True)
        )
    strangers = replace(pictures, classes=tuple(1 - number for number in pictures.classes))
    lost = judge_grids(model, strangers, 2 * SIDE)
    assert "does not know these pictures" in next(make_grid_findings(lost, strangers, command="", basis={})).verdict
