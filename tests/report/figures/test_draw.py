"""Figures: parsed back with an XML parser, and compared with the data they were drawn from."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import matplotlib.pyplot as plt
from hypothesis import given, settings
from hypothesis import strategies as st

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import draw
from clockhands.report.figures.draw import _set_limits
from tests.report.demo import EVIL
from tests.report.figures.svg_tree import SVG, one, texts, titles


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


def test_at_most_four_panels_stand_beside_each_other() -> None:
    """A findings.json may ask for as many columns as it likes."""
    panel = Panel((Mark("points", "a", (0, 1), (0.0, 1.0)),))
    root = ET.fromstring(draw(Figure((panel,) * 9, columns=12), "fig"))
    left = [float(circle.get("cx", "")) for circle in root.iter(f"{SVG}circle")][::2]
    assert left[0] == left[4] == left[8] < left[1] == left[5] < left[2] < left[3]


NUMBERS = st.one_of(st.none(), st.floats(allow_subnormal=False, min_value=-1e30, max_value=1e30), st.integers(-9, 9))


@settings(max_examples=25, deadline=None)
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
        _, axes = plt.subplots()
        axes.plot([0, 1], [0.0, 1.0])
        _set_limits(axes, Panel((line,), ylim=limits, xlim=limits))
        heights[limits] = (axes.get_xlim(), axes.get_ylim())
        plt.close()
    assert heights[0.0, 10.0] == ((0, 10), (0, 10)) and heights[0.0, 1.0] == ((0, 1), (0, 1))
    assert heights[None] not in (heights[0.0, 10.0], heights[0.0, 1.0])
