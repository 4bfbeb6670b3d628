"""The room that labels take, and the axes that panels share."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import draw
from clockhands.report.figures.draw import Sheet
from clockhands.report.figures.layout import measure_names
from tests.report.figures.svg_tree import SVG, texts


def test_a_panel_is_as_high_as_its_names_need_up_to_sixty() -> None:
    def height(names: int) -> float:
        labels = tuple(f"name {place}" for place in range(names))
        return measure_names(Panel((Mark("points", "a", tuple(range(names)), labels),)))

    assert height(20) - height(10) == height(30) - height(20) > 0
    assert height(60) > height(59) and height(61) == 0


def test_slanted_names_take_no_room_from_the_bars() -> None:
    """A panel on a phone keeps its height, however long the names below it are, and its label stays on the sheet."""
    heights = []
    for letters in (10, 20, 30):
        names = tuple(f"{place}".ljust(letters, "a") for place in range(6))
        bars = Panel((Mark("bars", "a", names, (1.0,) * 6),), ylabel="% by which the mean of the output changes")
        sheet = Sheet(Figure((bars,), height=0.4))
        sheet.fill()
        sheet.print_svg()
        label = sheet.plots[0].ax.yaxis.label.get_window_extent()
        assert 0 <= label.y0 < label.y1 <= sheet.canvas.bbox.height
        heights.append(sheet.plots[0].ax.bbox.height)
    assert min(heights) > 80 and max(heights) - min(heights) < 20, heights


def test_panels_with_the_same_axis_share_its_limits() -> None:
    panels = tuple(Panel((Mark("points", "a", (0, 1), (0.0, top)),), "", "x", "y") for top in (1.0, 10.0))
    root = ET.fromstring(draw(Figure(2 * panels, columns=4), "fig"))
    heights = [float(c.get("cy", "")) for c in root.iter(f"{SVG}circle")]
    assert heights[0] == heights[2] == pytest.approx(heights[0])
    assert heights[0] - heights[3] == pytest.approx(10 * (heights[0] - heights[1]), rel=0.02)


@pytest.mark.parametrize(
    ("names", "xlabels", "ylabels"),
    [((("x", "y"), ("x", "z")), 2, 4), ((("x", "y"), ("w", "y")), 4, 2), ((("x", "y"), ("w", "z")), 4, 4)],
)
def test_only_the_names_of_a_shared_axis_are_left_to_the_outer_panels(
    names: tuple[tuple[str, str], ...], xlabels: int, ylabels: int
) -> None:
    """Two rows of two panels: those of the second are the lowest of their columns, and the first of each begins it."""
    panels = tuple(Panel((Mark("points", "a", (0, 1), (0.0, 1.0)),), "", *labels) for labels in names)
    shown = texts(ET.fromstring(draw(Figure(2 * panels, columns=4), "fig")))
    assert sum(name in shown for name in {name for name, _ in names}) and sum(map(("x", "w").count, shown)) == xlabels
    assert sum(map(("y", "z").count, shown)) == ylabels


def test_same_label_same_colour_in_every_panel() -> None:
    both = Mark("line", "b", (0, 1), (0, 1))
    root = ET.fromstring(
        draw(Figure((Panel((Mark("line", "a", (0, 1), (1, 0)), both)), Panel((both,))), columns=2), "fig")
    )
    lines = [e.get("style", "") for e in root.iter(f"{SVG}path") if "stroke-linecap: round" in e.get("style", "")]
    colours = [style.split("stroke: ")[1][:7] for style in lines if "stroke: " in style]
    assert len(set(colours)) == 2
    assert colours[-1] == colours[1]
