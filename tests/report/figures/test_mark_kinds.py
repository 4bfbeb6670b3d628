"""Every kind of mark: drawn where its values are, and read by pointing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import DataError
from clockhands.findings import Mark
from clockhands.report.figures import mark_kinds
from clockhands.report.figures.mark_kinds import _choose_step
from tests.report.figures.svg_tree import KINDS, SVG, decoded, one, strokes, texts, titles, transform

ROOT = Path(__file__).resolve().parents[3]
TOLD = {
    "line": ["a: 1, 0.5", "a: 2, 0.25", "a: 3, 0.125"],
    "points": ["a: 1, 3.5 [3, 4]", "a: 2, 4.5 [4, 5]"],
    "bars": ["a: u, 2", "a: v, 7.5"],
    "stack": ["a: 1, 0.3", "a: 2, 0.6"],
    "hline": ["a: 0.25"],
    "vline": ["a: 12"],
    "heatmap": ["r, p: 0.1", "r, q: 0.2", "s, p: 0.3", "s, q: 0.4"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_can_be_pointed_at(kind: str) -> None:
    assert titles(one(KINDS[kind])) == TOLD[kind]


def test_a_band_is_drawn() -> None:
    band = Mark("band", "range", (0, 1, 2), low=(0.0, 1.0, 0.0), high=(1.0, 2.0, 1.0))
    assert (
        strokes(one(band), "#0072b2")
        > strokes(one(Mark("line", "", (0, 1), (0, 1), emphasis="reference")), "#0072b2")
        == 0
    )


def test_bars_are_as_tall_as_their_values() -> None:
    root = one(Mark("bars", "a", ("u", "v", "w"), (1.0, 2.0, 4.0)))
    heights = [float(box.get("height", "")) for box in root.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    assert heights[1] / heights[0] == pytest.approx(2, rel=0.01)
    assert heights[2] / heights[0] == pytest.approx(4, rel=0.01)


def test_stacks_stand_on_one_another() -> None:
    root = one(Mark("stack", "a", (1,), (3.0,)), Mark("stack", "b", (1,), (1.0,)), Mark("stack", "c", (1,), (-2.0,)))
    boxes = {box[0].text: box for box in root.iter(f"{SVG}rect") if len(box)}
    edges = {key: (float(box.get("y", "")), float(box.get("height", ""))) for key, box in boxes.items()}
    (a, b, c) = (edges[f"{name}: 1, {value}"] for name, value in (("a", "3"), ("b", "1"), ("c", "−2")))
    assert b[0] + b[1] == pytest.approx(a[0], abs=0.2)
    assert a[0] + a[1] == pytest.approx(c[0], abs=0.2)
    assert a[1] == pytest.approx(3 * b[1], rel=0.02)


def test_words_on_the_side_lay_bars_down() -> None:
    root = one(Mark("bars", "a", (1.0, 3.0), ("short", "long")))
    widths = [float(box.get("width", "")) for box in root.iter(f"{SVG}rect") if len(box)]
    assert widths[1] == pytest.approx(3 * widths[0], rel=0.01)
    assert {"short", "long"} <= set(texts(root))


def test_hover_lies_where_the_data_lie() -> None:
    """Four points of a square, linear axes: the hover discs form a rectangle, in the data's order and orientation."""
    root = one(Mark("points", "", (0, 1, 0, 1), (0, 0, 5, 5)))
    discs = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in root.iter(f"{SVG}circle")]
    (a, b, c, d) = discs
    assert a[0] == c[0] < b[0] == d[0] and a[1] == b[1] > c[1] == d[1]


@pytest.fixture
def crosses() -> Iterator[None]:
    """The kind of mark that docs/contributing/mark.md adds."""
    section = (
        (ROOT / "docs/contributing/mark.md").read_text("utf8").split("# Adding a kind of mark")[1].split("\n## ")[0]
    )
    (code,) = re.findall(r"```python\n(.*?)```", section, re.S)
    names: dict[str, Any] = {**vars(mark_kinds)}
    exec(code, names)
    mark_kinds.KINDS["crosses"] = names["Crosses"]
    yield
    del mark_kinds.KINDS["crosses"]


def test_a_kind_of_mark_is_added_in_one_place(crosses: None) -> None:
    """It is drawn, read by pointing, checked, coloured and named in the legend."""
    root = one(Mark("crosses", "mine", (1, 2), (3.0, 4.0)), Mark("line", "other", (1, 2), (1.0, 2.0)))
    assert titles(root) == ["mine: 1, 3", "mine: 2, 4", "other: 1, 1", "other: 2, 2"]
    assert {"mine", "other"} <= set(texts(root))
    assert strokes(root, "#0072b2") and strokes(root, "#d55e00")
    with pytest.raises(DataError, match=r"mark 1 \(crosses ''\) has no y"):
        one(Mark("crosses", x=(1,)))


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
