"""Figures, parsed back with an XML parser."""

from __future__ import annotations

import base64
import copy
import io
import re
import xml.etree.ElementTree as ET
from typing import Any

from PIL import Image

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import draw

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
