"""A label looks the same in every panel."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import draw
from tests.report.figures.svg_tree import SVG


def test_same_label_same_colour_in_every_panel() -> None:
    both = Mark("line", "b", (0, 1), (0, 1))
    root = ET.fromstring(
        draw(Figure((Panel((Mark("line", "a", (0, 1), (1, 0)), both)), Panel((both,))), columns=2), "fig")
    )
    lines = [e.get("style", "") for e in root.iter(f"{SVG}path") if "stroke-linecap: round" in e.get("style", "")]
    colours = [style.split("stroke: ")[1][:7] for style in lines if "stroke: " in style]
    assert len(set(colours)) == 2
    assert colours[-1] == colours[1]
