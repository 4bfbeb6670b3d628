"""Heatmaps: a small picture of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clockhands.errors import DataError
from clockhands.findings import Mark
from clockhands.report.figures.heatmap import _choose_step
from tests.report.figures.svg_tree import SVG, decoded, one, titles, transform


def test_heatmap_is_a_small_picture_of_the_data() -> None:
    """The embedded PNG, decoded: as many pixels as cells, the brightest where the value is largest."""
    root = one(Mark("heatmap", "", z=((0.0, 1.0, 2.0), (3.0, 4.0, 9.0))))
    images = {(picture := decoded(image)).size: (image, picture) for image in root.iter(f"{SVG}image")}
    image, picture = images[3, 2]
    pixels = [picture.getpixel((x, y)) for y in range(2) for x in range(3)]
    down = [pixels[:3], pixels[3:]]
    (_, _, _, upright, _, _) = transform(image)
    top, bottom = down if upright > 0 else reversed(down)
    assert top[0] < top[1] < top[2] < bottom[0] < bottom[1] < bottom[2]


@pytest.mark.parametrize("cell", [None, 2.0])
def test_missing_cells_are_hatched(cell: float | None) -> None:
    """A cell without a value is transparent: without hatching it is as pale as 0 on a diverging scale."""
    root = one(Mark("heatmap", "", z=((-1.0, 1.0), (cell, 0.0)), diverging=True))
    hatched = [path for path in root.iter(f"{SVG}path") if "url(#" in path.get("style", "")]
    assert (len(hatched), len(list(root.iter(f"{SVG}pattern")))) == ((1, 1) if cell is None else (0, 0))


@pytest.mark.parametrize(
    ("count", "room", "step"), [(8, 100, 1), (9, 100, 2), (50, 100, 10), (500, 300, 20), (30, 0, 500)]
)
def test_so_many_names_are_written_as_have_room(count: int, room: float, step: int) -> None:
    """Twelve points for each; steps are 1, 2, 5 and their tens."""
    assert _choose_step(count, room, 12.0) == step


TILES = Mark(
    "tiles", "attention", ("0", "1"), ("1",), z=((0.1, 0.9, 0.5, 0.5), (0.2, 0.8, 1.0, 0.0)), names=("a", "b\nc")
)


def test_a_tile_is_pointed_at_as_a_whole() -> None:
    """Two maps of two by two side by side: two places to point at, each half of the width."""
    root = one(TILES)
    assert titles(root) == ["a", "b\nc"]
    left, right = (box for box in root.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None)
    assert float(right.get("x", "")) == pytest.approx(float(left.get("x", "")) + float(left.get("width", "")), abs=0.2)
    assert left.get("width") == right.get("width")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"names": ("a",)}, "has 1 names for 2 tiles"),
        ({"x": ("0", "1", "2")}, r"has 2 rows and \[4\] columns in z for 1 x 3 tiles; all tiles must be of one size"),
        ({"y": ()}, "has no y; tiles cannot be drawn without it"),
    ],
)
def test_tiles_that_contradict_themselves_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        one(replace(TILES, **changes))
