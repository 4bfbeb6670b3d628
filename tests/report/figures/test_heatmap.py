"""Heatmaps: a small picture of the data."""

from __future__ import annotations

from clockhands.findings import Mark
from tests.report.figures.svg_tree import SVG, decoded, one, transform


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
