"""Figures: parsed back with an XML parser, and compared with the data they were drawn from."""

from __future__ import annotations

import base64
import copy
import io
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from clockhands.errors import DataError
from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import as_file, draw
from tests.report.demo import EVIL, demo

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"


def one(*marks: Mark, **panel: Any) -> ET.Element:
    return ET.fromstring(draw(Figure((Panel(marks, **panel),)), "fig"))


def titles(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}title")]


def texts(root: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def strokes(root: ET.Element, colour: str) -> int:
    return sum(f": {colour}" in element.get("style", "") for element in root.iter())


def transform(image: ET.Element) -> tuple[float, ...]:
    """The six numbers a, b, c, d, e, f of an SVG matrix; a bare ``scale`` or ``translate`` written as one."""
    a, d = 1.0, 1.0
    for name, body in re.findall(r"(\w+)\(([^)]*)\)", image.get("transform", "")):
        values = [float(value) for value in re.split(r"[ ,]+", body.strip())]
        if name == "matrix":
            return tuple(values)
        if name == "scale":
            a, d = a * values[0], d * values[-1]
    return (a, 0.0, 0.0, d, 0.0, 0.0)


def decoded(image: ET.Element) -> Image.Image:
    """The embedded picture as grey values."""
    return Image.open(io.BytesIO(base64.b64decode(image.get(LINK, "").split(",", 1)[1]))).convert("L")


def forged(whole: Any, **fields: Any) -> Any:
    """A copy whose fields hold what its types forbid, as a file written elsewhere may."""
    made = copy.copy(whole)
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made


KINDS = {
    "line": Mark("line", "a", (1, 2, 3), (0.5, 0.25, 0.125)),
    "points": Mark("points", "a", (1, 2), (3.5, 4.5), low=(3.0, 4.0), high=(4.0, 5.0)),
    "bars": Mark("bars", "a", ("u", "v"), (2.0, 7.5)),
    "stack": Mark("stack", "a", (1, 2), (0.3, 0.6)),
    "hline": Mark("hline", "a", y=(0.25,)),
    "vline": Mark("vline", "a", x=(12,)),
    "heatmap": Mark("heatmap", "a", z=((0.1, 0.2), (0.3, 0.4)), x=("p", "q"), y=("r", "s")),
}
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
        strokes(one(band), "#0072b2") > strokes(one(Mark("line", "", (0, 1), (0, 1), emphasis="null")), "#0072b2") == 0
    )


def test_hover_lies_where_the_data_lie() -> None:
    """Four points of a square, linear axes: the hover discs form a rectangle, in the data's order and orientation."""
    root = one(Mark("points", "", (0, 1, 0, 1), (0, 0, 5, 5)))
    discs = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in root.iter(f"{SVG}circle")]
    (a, b, c, d) = discs
    assert a[0] == c[0] < b[0] == d[0] and a[1] == b[1] > c[1] == d[1]


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


def test_large_heatmaps_stay_light() -> None:
    z = tuple(tuple(((i * 7919 + j * 104729) % 1000) / 1000 for j in range(600)) for i in range(600))
    svg = draw(Figure((Panel((Mark("heatmap", "", z=z),)),)), "fig")
    assert len(svg) < 300_000


def test_missing_values_are_gaps() -> None:
    root = one(Mark("line", "a", (0, 1, 2, 3), (1.0, None, float("nan"), 2.0)))
    assert titles(root) == ["a: 0, 1", "a: 3, 2"]
    assert "nan" not in ET.tostring(root, encoding="unicode").lower()


def test_log_axes_write_plain_powers() -> None:
    root = one(Mark("line", "a", (1, 1e3), (1e-8, 1.0)), xscale="log", yscale="log")
    assert not any("mathdefault" in text for text in texts(root))
    assert "1 000" in [text.replace("\u202f", " ") for text in texts(root)]
    zero = one(Mark("points", "a", (1, 2), (0.0, 1.0)), yscale="log")
    assert titles(zero) == ["a: 2, 1"]


def test_equal_figures_give_equal_bytes_and_different_ones_different_ids() -> None:
    figures = [item.figure for item in demo() if item.figure]
    ids: set[str] = set()
    for number, figure in enumerate(figures):
        name = f"f{number}" if number else "none"  # The scheme of this name had other ids at every drawing.
        svg = draw(figure, name)
        assert svg == draw(figure, name)
        mine = [element.get("id") for element in ET.fromstring(svg).iter() if element.get("id")]
        assert len(mine) == len(set(mine))
        assert not ids & set(mine)
        ids |= set(mine)
        refers = [e.get(LINK, "") for e in ET.fromstring(svg).iter() if e.get(LINK, "").startswith("#")]
        assert set(refers) <= {f"#{own}" for own in mine}


def test_hostile_text_stays_text_and_mathematics_is_not_read() -> None:
    hostile = ("a\x00\n\ud800b", EVIL, "$x^2$", '"id="p', "]]>&amp;")
    root = one(
        Mark("points", EVIL, (1, 2, 3, 4, 5), hostile, names=hostile),
        Mark("vline", "$chance$", x=(1,), emphasis="null"),
        title=EVIL,
        xlabel="$\\frac$",
    )
    shown = "\n".join(texts(root))
    assert all(text in shown for text in (*hostile[1:], "$chance$", "$\\frac$", "a␀␊\ufffdb"))
    assert not [element for element in root.iter() if not str(element.tag).startswith("{http://www.w3.org/")]
    assert "img" not in {str(element.tag) for element in root.iter()}


def test_file_has_its_own_dark_colours() -> None:
    text = as_file(draw(Figure((Panel((KINDS["line"],)),)), "fig"))
    assert text.startswith("<?xml")
    style = ET.fromstring(text.encode()).find(f"{SVG}style")
    assert style is not None and "prefers-color-scheme: dark" in (style.text or "")


def test_same_label_same_colour_in_every_panel() -> None:
    both = Mark("line", "b", (0, 1), (0, 1))
    root = ET.fromstring(
        draw(Figure((Panel((Mark("line", "a", (0, 1), (1, 0)), both)), Panel((both,))), columns=2), "fig")
    )
    lines = [e.get("style", "") for e in root.iter(f"{SVG}path") if "stroke-linecap: round" in e.get("style", "")]
    colours = [style.split("stroke: ")[1][:7] for style in lines if "stroke: " in style]
    assert len(set(colours)) == 2
    assert colours[-1] == colours[1]


def test_panels_with_the_same_axis_share_its_limits() -> None:
    panels = tuple(Panel((Mark("points", "a", (0, 1), (0.0, top)),), "", "x", "y") for top in (1.0, 10.0))
    root = ET.fromstring(draw(Figure(panels, columns=2), "fig"))
    heights = [float(c.get("cy", "")) for c in root.iter(f"{SVG}circle")]
    assert heights[0] == heights[2] == pytest.approx(heights[0])
    assert heights[0] - heights[3] == pytest.approx(10 * (heights[0] - heights[1]), rel=0.02)


def test_at_most_four_panels_stand_beside_each_other() -> None:
    """A findings.json may ask for as many columns as it likes."""
    panel = Panel((Mark("points", "a", (0, 1), (0.0, 1.0)),))
    root = ET.fromstring(draw(Figure((panel,) * 9, columns=12), "fig"))
    left = [float(circle.get("cx", "")) for circle in root.iter(f"{SVG}circle")][::2]
    assert left[0] == left[4] == left[8] < left[1] == left[5] < left[2] < left[3]


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


NUMBERS = st.one_of(st.none(), st.floats(allow_subnormal=False, min_value=-1e30, max_value=1e30), st.integers(-9, 9))


@settings(max_examples=25, deadline=None)
@given(data=st.data(), kind=st.sampled_from(["line", "points", "bars", "stack"]), name=st.text(max_size=8))
def test_whatever_the_values_the_result_is_well_formed(data: st.DataObject, kind: Any, name: str) -> None:
    y = tuple(data.draw(st.lists(NUMBERS, min_size=1, max_size=6)))
    x = data.draw(st.sampled_from([(), tuple(range(len(y))), tuple(f"{name}{i}" for i in range(len(y)))]))
    root = one(Mark(kind, name, x, y))
    assert len(titles(root)) <= len(y)
