"""Every mark of every kind is seen on what lies behind it: a contrast of at least 3 to 1 (WCAG 2.2, 1.4.11).

Measured on the drawn SVG, on light paper and on a dark screen: each shape against everything that was painted before.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from matplotlib import colormaps

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import draw
from clockhands.report.figures.mark_kinds import KINDS, choose_text_colour
from clockhands.report.figures.palette import DARK, DIVERGING, FAINT, GRID, PAPER, SEQUENTIAL, SERIES
from tests.report.contrast import contrast, parse_colour
from tests.report.demo import demo
from tests.report.figures.painted import Place, Shape, find_behind, list_shapes
from tests.report.figures.svg_tree import SVG

LEAST = 3.0
X = (1, 2, 3)
MODES = ("light", "dark")


def spread(kind: str, label: str, base: float = 0.0, emphasis: str = "") -> Mark:
    """A mark of three values with their intervals."""
    y = tuple(base + value for value in (2.0, 5.0, 3.0))
    ends = {"low": tuple(value - 1 for value in y), "high": tuple(value + 1 for value in y)}
    return Mark(kind, label, X, () if kind == "band" else y, emphasis=emphasis, **ends)  # type: ignore[arg-type]


def repeat(kind: str, step: float = 0.0) -> tuple[Mark, ...]:
    """One mark in each colour of a figure."""
    return tuple(spread(kind, f"{kind} {index}", step * index) for index in range(len(SERIES)))


RULES = (Mark("hline", "h", y=(2.5,)), Mark("vline", "v", x=(2.5,)), Mark("hline", "r", y=(4.2,), emphasis="reference"))
Z = tuple(tuple(float(row * 8 + column) for column in range(8)) for row in range(4))
MAPS = {kind: Mark(kind, "z", z=Z) for kind in ("heatmap",)} | {
    "tiles": Mark("tiles", "z", ("a", "b"), ("c",), z=Z, names=("one", "two"))
}
SCENES: dict[str, tuple[Mark, ...]] = {
    **{kind: repeat(kind, 8.0) for kind in ("line", "points", "bars", "stack", "band")},
    "rules": RULES,
    "rules on bands": (*repeat("band", 1.0), *RULES),
    "lines on bands": (*repeat("band", 1.0), *repeat("line", 1.0)),
    "lines on bars": (*repeat("bars"), *repeat("line", 0.5)),
    "points on bars": (*repeat("bars"), *repeat("points", -0.5)),
    "references on bars": (*repeat("bars"), spread("points", "untrained", -0.5, "reference")),
    "points on bands": (*repeat("band", 1.0), *repeat("points", 1.0)),
    **{kind: (mark,) for kind, mark in MAPS.items()},
}
"""Each kind of mark, in every colour, alone and on what it is drawn over."""


def paint(figure: Figure, mode: str) -> tuple[list[Shape], str, list[ET.Element]]:
    """Return the shapes of a figure, its paper, and its pictures, in the colours of a mode."""
    svg = draw_once(figure)
    if mode == "dark":
        for light, dark in DARK.items():
            svg = svg.replace(f": {light}", f": {dark}")
    root = ET.fromstring(svg)
    return list_shapes(root), in_mode(PAPER, mode), list(root.iter(f"{SVG}image"))


@cache
def draw_once(figure: Figure) -> str:
    return draw(figure, "contrast")


def in_mode(colour: str, mode: str) -> str:
    return DARK[colour] if mode == "dark" else colour


def find_faint(shapes: Sequence[Shape], mode: str) -> Iterator[str]:
    """Yield the shapes that are not seen.

    Left out are axes and grid, on which marks lie, rims of paper, which are no marks, and tints with lines along them.
    """
    paper = in_mode(PAPER, mode)
    without = {in_mode(GRID, mode), in_mode(FAINT, mode)}
    for index, shape in enumerate(shapes):
        is_rim = shape.colour == paper and shape.stroke in (None, paper)
        if is_rim or shape.stroke in without or has_lines(shape, shapes):
            continue
        below, measure = shapes[:index], measure_area if shape.closed else measure_line
        best = min((measure(shape, place, below, paper) for place in list_places(shape)), default=LEAST)
        if best < LEAST:
            yield f"{shape.colour} at {shape.outline[0]}: {best:.2f}"


def has_lines(shape: Shape, shapes: Sequence[Shape]) -> bool:
    """Tell whether a tint has lines of its colour along it, which are measured themselves, but for its two ends."""
    if not shape.closed or shape.opacity == 1:
        return False
    along = [place for place in list_places(shape) if 0 < place_share(shape, place) < 1]
    lines = [line for line in shapes if not line.closed and line.colour == shape.colour]
    return all(any(line.covers(place) for line in lines) for place in along)


def place_share(shape: Shape, place: Place) -> float:
    """How far to the right in a shape a place is, from 0 to 1."""
    left, right = (end(x for x, _ in shape.outline) for end in (min, max))
    return round((place[0] - left) / (right - left), 3)


def list_places(shape: Shape) -> list[Place]:
    """The middle of each edge, and two places beside it, of the first few edges of a shape."""
    edges = [(a, b) for a, b in pairwise(shape.outline) if a != b][:12]
    shares = (0.1, 0.5, 0.9)
    return [(a[0] + s * (b[0] - a[0]), a[1] + s * (b[1] - a[1])) for a, b in edges for s in shares]


def measure_line(shape: Shape, place: Place, below: Sequence[Shape], paper: str) -> float:
    """The contrast of a line with the areas and rims behind it, but for its own symbols. Lines may cross each other."""
    grounds = [other for other in below if other.closed or (other.colour == paper and other.width > shape.width)]
    others = [other for other in grounds if other.colour != shape.colour or other.opacity < 1]
    return contrast(parse_colour(shape.colour), find_behind(others, place, paper))


def measure_area(shape: Shape, place: Place, below: Sequence[Shape], paper: str) -> float:
    """The contrast at an edge: of the fill or the edge with what lies around, or of both with each other."""
    around = find_behind([other for other in below if other.closed], place, paper)
    inside = tuple(
        shape.opacity * a + (1 - shape.opacity) * b for a, b in zip(parse_colour(str(shape.fill)), around, strict=True)
    )
    if shape.stroke is None or shape.width == 0:
        return contrast(inside, around)
    edge = parse_colour(shape.stroke)
    return max(contrast(edge, around), contrast(edge, inside))


def test_every_kind_of_mark_is_measured() -> None:
    assert set(KINDS) <= {mark.kind for marks in SCENES.values() for mark in marks}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scene", SCENES)
def test_every_mark_is_seen_on_what_lies_behind_it(scene: str, mode: str) -> None:
    shapes, _, _ = paint(Figure((Panel(SCENES[scene]),), height=1.5), mode)
    assert list(find_faint(shapes, mode)) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("finding", [item for item in demo() if item.figure], ids=lambda item: str(item.name))
def test_every_mark_of_the_demonstration_is_seen(finding: object, mode: str) -> None:
    shapes, _, _ = paint(finding.figure, mode)  # type: ignore[attr-defined]
    assert list(find_faint(shapes, mode)) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", MAPS)
def test_a_map_of_any_colours_has_a_frame_that_is_seen(kind: str, mode: str) -> None:
    """Its palest cells are the paper's colour: four edges, and two more where tiles meet; the scale beside it, too."""
    shapes, paper, pictures = paint(Figure((Panel((MAPS[kind],)),)), mode)
    frame = in_mode(FAINT, mode)
    assert contrast(parse_colour(frame), parse_colour(paper)) >= LEAST
    edges = [shape for shape in shapes if shape.stroke == frame and len(shape.outline) >= 2]
    assert len(pictures) == 2
    assert len([edge for edge in edges if len(edge.outline) == 2]) == 4 + (kind == "tiles")
    assert [edge for edge in edges if len(edge.outline) > 3], "the frame of the scale"


@pytest.mark.parametrize("name", [SEQUENTIAL, DIVERGING])
def test_a_number_in_a_cell_is_read_on_every_colour(name: str) -> None:
    for ground in colormaps[name](np.linspace(0, 1, 200))[:, :3]:
        assert contrast(255 * ground, parse_colour(choose_text_colour(ground))) >= 4.5
