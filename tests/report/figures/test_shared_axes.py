"""Panels that show the same quantity share its axis."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import draw
from tests.report.figures.svg_tree import SVG, texts


def test_panels_with_the_same_axis_share_its_limits() -> None:
    panels = tuple(Panel((Mark("points", "a", (0, 1), (0.0, top)),), "", "x", "y") for top in (1.0, 10.0))
    root = ET.fromstring(draw(Figure(panels, columns=2), "fig"))
    heights = [float(c.get("cy", "")) for c in root.iter(f"{SVG}circle")]
    assert heights[0] == heights[2] == pytest.approx(heights[0])
    assert heights[0] - heights[3] == pytest.approx(10 * (heights[0] - heights[1]), rel=0.02)


@pytest.mark.parametrize(
    ("names", "xlabels", "ylabels"),
    [((("x", "y"), ("x", "z")), 2, 2), ((("x", "y"), ("w", "y")), 2, 1), ((("x", "y"), ("w", "z")), 2, 2)],
)
def test_only_the_names_of_a_shared_axis_are_left_to_the_outer_panels(
    names: tuple[tuple[str, str], ...], xlabels: int, ylabels: int
) -> None:
    """Two panels side by side: each is the lowest of its column, and the first alone begins the row."""
    panels = tuple(Panel((Mark("points", "a", (0, 1), (0.0, 1.0)),), "", *labels) for labels in names)
    shown = texts(ET.fromstring(draw(Figure(panels, columns=2), "fig")))
    assert sum(name in shown for name in {name for name, _ in names}) and sum(map(("x", "w").count, shown)) == xlabels
    assert sum(map(("y", "z").count, shown)) == ylabels
