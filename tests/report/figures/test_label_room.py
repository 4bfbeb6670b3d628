"""The room that labels take: a panel is high and wide enough for them, and they leave room for the data."""

from __future__ import annotations

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures.draw import Sheet
from clockhands.report.figures.label_room import measure_names


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
        sheet = Sheet(Figure((bars,), height=0.4), narrow=True)
        sheet.fill()
        sheet.print_svg()
        label = sheet.plots[0].ax.yaxis.label.get_window_extent()
        assert 0 <= label.y0 < label.y1 <= sheet.canvas.bbox.height
        heights.append(sheet.plots[0].ax.bbox.height)
    assert min(heights) > 80 and max(heights) - min(heights) < 20, heights
