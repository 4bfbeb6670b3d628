"""What an SVG of a figure paints, shape by shape, and what lies behind a place of it."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.path import Path

from tests.report.contrast import parse_colour
from tests.report.figures.svg_tree import LINK, SVG

Place = tuple[float, float]
Colour = tuple[float, ...]


@dataclass(frozen=True)
class Shape:
    """A painted shape: its outline in points of the sheet, and its colours; None: not filled, or no edge."""

    outline: tuple[Place, ...]
    fill: str | None
    opacity: float
    stroke: str | None
    width: float

    @property
    def closed(self) -> bool:
        return self.fill is not None

    @property
    def colour(self) -> str:
        """What it is seen by: its fill, or that of its line."""
        return str(self.fill or self.stroke)

    def covers(self, place: Place) -> float:
        """Return how opaque the shape is at a place. Of an area the inside counts: its edge is thin."""
        if self.closed:
            return self.opacity if Path(self.outline).contains_point(place) else 0.0
        pieces = pairwise(self.outline)
        return float(any(measure_distance(place, start, end) <= self.width / 2 for start, end in pieces))


def list_shapes(root: ET.Element) -> list[Shape]:
    """Return the shapes in the order in which they are painted, without those to point at and those to clip by."""
    named = {element.get("id"): element for element in root.iter() if element.get("id")}
    return [shape for element in _walk(root) for shape in _read(element, named)]


def find_behind(shapes: Sequence[Shape], place: Place, paper: str) -> Colour:
    """Return the colour that shapes make of the paper at a place."""
    colour: Colour = parse_colour(paper)
    for shape in shapes:
        opacity = shape.covers(place)
        if opacity:
            over = parse_colour(shape.colour)
            colour = tuple(opacity * a + (1 - opacity) * b for a, b in zip(over, colour, strict=True))
    return colour


def _walk(parent: ET.Element) -> Iterator[ET.Element]:
    for element in parent:
        if element.tag in (f"{SVG}defs", f"{SVG}text") or element.get("class") == "hover":
            continue
        yield element
        yield from _walk(element)


def _read(element: ET.Element, named: dict[str | None, ET.Element]) -> Iterator[Shape]:
    shift, path, style = (0.0, 0.0), element, element.get("style", "")
    if element.tag == f"{SVG}use":
        path = named[element.get(LINK, "").removeprefix("#")]
        shift = (float(element.get("x", 0)), float(element.get("y", 0)))
        style = f"{path.get('style', '')};{style}"
    if path.tag != f"{SVG}path":
        return
    values = dict(re.findall(r"([\w-]+): ?([^;]+)", style))
    fill, stroke = (value if value and value.startswith("#") else None for value in map(values.get, ("fill", "stroke")))
    fill = "#000000" if "fill" not in values else fill
    opacity = float(values.get("fill-opacity", values.get("opacity", 1)))
    for outline in _split(path.get("d", ""), shift):
        yield Shape(outline, fill, opacity, stroke, float(values.get("stroke-width", 1)))


def _split(d: str, shift: Place) -> Iterator[tuple[Place, ...]]:
    """Yield the parts of a path as points; of a curve the points that it is drawn to."""
    for part in filter(None, d.split("M")):
        points: list[Place] = []
        for command, numbers in re.findall(r"([LCQZz]?)([^LCQZz]*)", part):
            values = [float(value) for value in re.findall(r"-?[\d.]+(?:e-?\d+)?", numbers)]
            if values:
                points.append((values[-2] + shift[0], values[-1] + shift[1]))
            elif command in "Zz" and command:
                points.append(points[0])
        yield tuple(points)


def measure_distance(place: Place, start: Place, end: Place) -> float:
    """Return the distance of a place from the line between two others."""
    (x, y), (x0, y0), (x1, y1) = place, start, end
    length = (x1 - x0) ** 2 + (y1 - y0) ** 2
    share = max(0.0, min(1.0, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length)) if length else 0.0
    return math.hypot(x - x0 - share * (x1 - x0), y - y0 - share * (y1 - y0))
