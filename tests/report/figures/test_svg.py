"""The SVG: ids of its own, equal bytes, and a file with its own dark colours."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import draw, make_file
from tests.report.demo import demo
from tests.report.figures.svg_tree import KINDS, LINK, SVG


def test_equal_figures_give_equal_bytes_and_different_ones_different_ids() -> None:
    figures = [item.figure for item in demo() if item.figure]
    ids: set[str] = set()
    for number, figure in enumerate(figures):
        name = f"f{number}" if number else "none"  # The scheme of this name had other ids at every drawing.
        svg = draw(figure, name)
        assert number % 3 or svg == draw(figure, name), "drawn again, it is the same"
        mine = [element.get("id") for element in ET.fromstring(svg).iter() if element.get("id")]
        assert len(mine) == len(set(mine))
        assert not ids & set(mine)
        ids |= set(mine)
        refers = [e.get(LINK, "") for e in ET.fromstring(svg).iter() if e.get(LINK, "").startswith("#")]
        assert set(refers) <= {f"#{own}" for own in mine}


def test_a_symbol_has_the_colours_of_where_it_is_used() -> None:
    """A rule for dark screens finds the <use>, and not what the browser copies from the definition."""
    marks = (
        KINDS["stack"],
        Mark("points", "a", KINDS["stack"].x, (0.5,) * len(KINDS["stack"].x), emphasis="reference"),
    )
    root = ET.fromstring(draw(Figure((Panel(marks),)), "fig"))
    symbols = {f"#{path.get('id')}": path for path in root.iterfind(f".//{SVG}defs/{SVG}path")}
    uses = [use for use in root.iter(f"{SVG}use") if use.get(LINK) in symbols]
    assert uses and all("stroke: #" in use.get("style", "") for use in uses)
    assert not [path.attrib for path in symbols.values() if "style" in path.attrib]


def test_file_has_its_own_dark_colours() -> None:
    text = make_file(draw(Figure((Panel((KINDS["line"],)),)), "fig"))
    assert text.startswith("<?xml")
    style = ET.fromstring(text.encode()).find(f"{SVG}style")
    assert style is not None and "prefers-color-scheme: dark" in (style.text or "")
