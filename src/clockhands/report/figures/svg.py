"""What Matplotlib's SVG still needs: ids of its own, places to point at, lighter numbers, one font, no fixed size."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from clockhands.report.figures.palette import FONT, make_dark_css
from clockhands.report.text import make_slug
from clockhands.streams import replace_controls

SCALE = 1.5
"""By how much a figure on a page is larger than it was drawn, where there is room."""
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_FAMILY = re.compile(r"font-family: [^;]+;? ?")
_SPACES = re.compile(r"\s*([MLHVCQZz])\s*")
_DIGITS = re.compile(r"-?\d+\.\d{3,}")
"""In the text of an SVG: the font of a style, spaces around the letters of a path, and numbers of many decimals."""


@dataclass(frozen=True)
class Target:
    """A place that shows ``text`` when pointed at, in points; without extent it becomes a small disc."""

    x: float
    y: float
    width: float
    height: float
    text: str


def finish(raw: bytes, name: str, targets: Sequence[Target], *, alternative: str) -> str:
    """Return the SVG element as text, ready to stand in a page; ``alternative`` is read to who cannot see it.

    The ids that stay are Matplotlib's hashes, salted with the name of the figure: no two figures of a page share one.
    """
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _LINK)
    root = ET.fromstring(raw)
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    values = "\n".join(value for element in root.iter() for value in element.attrib.values())
    _prune(root, set(re.findall(r"(?m)(?:^#|url\(#)([\w.-]+)", values)))  # the ids that some attribute refers to
    for element in root.iter():
        _lighten(element)
    for symbol in root.iterfind(f".//{{{_SVG}}}defs/{{{_SVG}}}path"):
        # Each <use> has the whole style; the symbol's own would keep the colours of paper on a dark screen.
        symbol.attrib.pop("style", None)
    root.append(_make_hover_layer(targets))
    root.set("id", f"{make_slug(name)}-svg")
    width, height = root.get("viewBox", "0 0 0 0").split()[2:]
    root.set("width", f"{SCALE * float(width):.0f}")
    root.set("height", f"{SCALE * float(height):.0f}")
    root.set("font-family", FONT)
    root.set("role", "img")
    root.set("aria-label", replace_controls(alternative) or "figure")
    return ET.tostring(root, encoding="unicode")


def make_file(svg: str, *, title: str = "", description: str = "", width: float | None = None) -> str:
    """Return the SVG as a file of its own, with an XML declaration, its title and its description.

    ``width``: how wide it is printed, in millimetres; it then has the colours of paper alone, and else those of dark
    screens too. Its height follows.
    """
    opening, rest = svg.split(">", 1)
    if width is not None:
        ((across, down),) = re.findall(r' viewBox="0 0 ([\d.]+) ([\d.]+)"', opening)  # Matplotlib writes one
        opening = re.sub(r' width="[\d.]+"', f' width="{width:g}mm"', opening)
        opening = re.sub(r' height="[\d.]+"', f' height="{width * float(down) / float(across):.1f}mm"', opening)
    dark = "@media screen and (prefers-color-scheme: dark){" + make_dark_css() + "}"
    style = f"<style>{dark}</style>" if width is None else ""
    words = {"title": title, "desc": description}
    inserted = "".join(f"<{tag}>{escape(replace_controls(text))}</{tag}>" for tag, text in words.items() if text)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{opening}>{inserted}{style}{rest}\n'


def _prune(parent: ET.Element, kept: set[str]) -> None:
    """Remove what draws nothing: unused ids, empty groups, invisible backgrounds, indentation."""
    for element in list(parent):
        _prune(element, kept)
        element.tail = None
        if element.tag != f"{{{_SVG}}}text" and not (element.text or "").strip():
            element.text = None
        if element.get("id") not in kept:
            element.attrib.pop("id", None)
        bare_group = element.tag == f"{{{_SVG}}}g" and not len(element)
        if bare_group or element.attrib.get("style") == "fill: none":
            parent.remove(element)
        elif element.tag == f"{{{_SVG}}}g" and not element.attrib and len(element) == 1:
            parent[list(parent).index(element)] = element[0]


def _lighten(element: ET.Element) -> None:
    """Shorten an element: coordinates to a hundredth of a point, finer than any screen, and no font but the page's."""
    for key in ("d", "x", "y", "points"):
        if key in element.attrib:
            short = _DIGITS.sub(lambda match: f"{float(match[0]):.2f}", element.attrib[key])
            element.set(key, _SPACES.sub(r"\1", short).strip())
    if "style" in element.attrib:
        element.set("style", _FAMILY.sub("", element.attrib["style"]))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]


def _make_hover_layer(targets: Sequence[Target]) -> ET.Element:
    """Return the transparent shapes that show the text of each target when pointed at: discs, and boxes."""
    layer = ET.Element(f"{{{_SVG}}}g", {"class": "hover", "fill": "none", "pointer-events": "all"})
    for target in targets:
        if target.width < 1 and target.height < 1:
            tag, place = "circle", {"cx": f"{target.x:.1f}", "cy": f"{target.y:.1f}", "r": "5"}
        else:
            width, height = max(target.width, 6.0), max(target.height, 6.0)
            x, y = target.x + (target.width - width) / 2, target.y + (target.height - height) / 2
            tag, place = "rect", {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
        shape = ET.SubElement(layer, f"{{{_SVG}}}{tag}", place)
        ET.SubElement(shape, f"{{{_SVG}}}title").text = replace_controls(target.text, lines=True)
    return layer
