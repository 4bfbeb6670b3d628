"""Figures: parsed back with an XML parser, and compared with the data they were drawn from."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clockhands.errors import DataError
from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import draw
from clockhands.report.figures.draw import Sheet, measure_names, show_percent
from tests.report.demo import EVIL
from tests.report.figures.svg_tree import KINDS, SVG, forged, one, texts, titles


def test_missing_values_are_gaps() -> None:
    root = one(Mark("line", "a", (0, 1, 2, 3), (1.0, None, float("nan"), 2.0)))
    assert titles(root) == ["a: 0, 1", "a: 3, 2"]
    assert "nan" not in ET.tostring(root, encoding="unicode").lower()


def test_log_axes_write_plain_powers() -> None:
    root = one(Mark("line", "a", (1, 1e3), (1e-8, 1.0)), xscale="log", yscale="log")
    assert not any("mathdefault" in text for text in texts(root))
    assert "1,000" in texts(root)
    zero = one(Mark("points", "a", (1, 2), (0.0, 1.0)), yscale="log")
    assert titles(zero) == ["a: 2, 1"]


def test_hostile_text_stays_text_and_mathematics_is_not_read() -> None:
    hostile = ("a\x00\n\ud800b", EVIL, "$x^2$", '"id="p', "]]>&amp;")
    root = one(
        Mark("points", EVIL, (1, 2, 3, 4, 5), hostile, names=hostile),
        Mark("vline", "$chance$", x=(1,), emphasis="reference"),
        title=EVIL,
        xlabel="$\\frac$",
    )
    shown = "\n".join(texts(root))
    assert all(text in shown for text in (*hostile[1:], "$chance$", "$\\frac$", "a␀␊\ufffdb"))
    assert not [element for element in root.iter() if not str(element.tag).startswith("{http://www.w3.org/")]
    assert "img" not in {str(element.tag) for element in root.iter()}


def test_at_most_two_panels_stand_beside_each_other() -> None:
    """A findings.json may ask for as many columns as it likes."""
    panel = Panel((Mark("points", "a", (0, 1), (0.0, 1.0)),))
    root = ET.fromstring(draw(Figure((panel,) * 9, columns=12), "fig"))
    left = [float(circle.get("cx", "")) for circle in root.iter(f"{SVG}circle")][::2]
    assert left[0] == left[2] == left[8] < left[1] == left[3] == left[7]


NUMBERS = st.one_of(st.none(), st.floats(allow_subnormal=False, min_value=-1e30, max_value=1e30), st.integers(-9, 9))


@settings(max_examples=25)
@given(data=st.data(), kind=st.sampled_from(["line", "points", "bars", "stack"]), name=st.text(max_size=8))
def test_whatever_the_values_the_result_is_well_formed(data: st.DataObject, kind: Any, name: str) -> None:
    y = tuple(data.draw(st.lists(NUMBERS, min_size=1, max_size=6)))
    x = data.draw(st.sampled_from([(), tuple(range(len(y))), tuple(f"{name}{i}" for i in range(len(y)))]))
    root = one(Mark(kind, name, x, y))
    assert len(titles(root)) <= len(y)


def test_an_axis_has_the_limits_of_its_panel() -> None:
    """The same line among wider limits takes less of the height."""
    line = Mark("line", "a", (0, 1), (0.0, 1.0))
    heights = {}
    for limits in (None, (0.0, 1.0), (0.0, 10.0)):
        sheet = Sheet(Figure((Panel((line,), ylim=limits, xlim=limits),)))
        sheet.fill()
        axes = sheet.plots[0].ax
        heights[limits] = (axes.get_xlim(), axes.get_ylim())
    assert heights[0.0, 10.0] == ((0, 10), (0, 10)) and heights[0.0, 1.0] == ((0, 1), (0, 1))
    assert heights[None] not in (heights[0.0, 10.0], heights[0.0, 1.0])


def convert(mark: Mark, **panel: object) -> tuple[Panel, Mark]:
    shown = show_percent(Figure((Panel((mark,), **panel),))).panels[0]  # type: ignore[arg-type]
    return shown, shown.marks[0]


def test_an_axis_of_shares_is_in_percent_with_its_limits_and_intervals() -> None:
    bars = Mark("bars", x=("a", "b"), y=(0.25, 1), low=(0.2, 0.5), high=(0.5, 1))
    panel, mark = convert(bars, ylabel="share of variance", xlabel="layer", ylim=(0, 1.5))
    assert (panel.ylabel, panel.xlabel, panel.ylim) == ("% of variance", "layer", (0, 150))
    assert (mark.x, mark.y, mark.low, mark.high) == (("a", "b"), (25, 100), (20, 50), (50, 100))


def test_bars_that_lie_have_their_numbers_across() -> None:
    panel, mark = convert(Mark("bars", x=(0.5,), y=("a",), low=(0.25,), high=(0.75,)), xlabel="share right")
    assert (panel.xlabel, mark.x, mark.low, mark.high) == ("% right", (50,), (25,), (75,))


def test_a_colour_bar_of_shares_is_in_percent_and_holes_stay() -> None:
    _, mark = convert(Mark("heatmap", "share", x=(1, 2), z=((0.5, None),)))
    assert (mark.label, mark.x, mark.z) == ("%", (1, 2), ((50, None),))


def test_what_is_no_share_stays_as_it_is() -> None:
    mark = Mark("line", "share of a", x=(1, 2), y=(0.5, 0.7))
    assert convert(mark, ylabel="nats per token") == (Panel((mark,), ylabel="nats per token"), mark)


FAULTS: dict[str, tuple[Mark, str]] = {
    "kind": (forged(KINDS["line"], kind="lines"), "unknown mark kind 'lines'; did you mean 'line'?"),
    "lengths": (Mark("line", "a", (1, 2), (1, 2, 3)), "has 2 x, 3 y; there must be equally many"),
    "names": (Mark("points", "a", (1, 2), (1, 2), names=("u",)), "has 2 x, 2 y, 1 names"),
    "empty": (Mark("bars", "a"), "has no y; a bars cannot be drawn without it"),
    "half": (Mark("line", "a", (1,), (1,), low=(0.0,)), "only one of low and high"),
    "band": (Mark("band", "a", (1,)), "has no low"),
    "ragged": (Mark("heatmap", "a", z=((1.0,), (1.0, 2.0))), "rows of [1, 2] values in z"),
    "ticks": (Mark("heatmap", "a", z=((1.0, 2.0),), x=("u",)), "has 1 x for 1 rows and 2 columns; it needs 2"),
    "words": (Mark("bars", "a", ("u",), ("v",)), "words on both axes"),
    "bounds": (forged(KINDS["points"], low=("u", "v")), "must be numbers"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_contradictions_are_refused_with_their_place(fault: str) -> None:
    mark, message = FAULTS[fault]
    with pytest.raises(DataError) as caught:
        draw(Figure((Panel((KINDS["line"],)), Panel((mark,)))), "loudness.share")
    assert "figure 'loudness.share', panel 2, mark 1" in str(caught.value)
    assert message in str(caught.value)


def test_figures_without_panels_or_columns_or_scale_are_refused() -> None:
    panel = Panel((KINDS["line"],))
    for figure, message in (
        (Figure(()), "has no panels"),
        (Figure((panel,), columns=0), "has 0 columns"),
        (Figure((forged(panel, xscale="logg"),)), "unknown x scale 'logg'; did you mean 'log'?"),
    ):
        with pytest.raises(DataError, match=re.escape(message)):
            draw(figure, "f")


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
