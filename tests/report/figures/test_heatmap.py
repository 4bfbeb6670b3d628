"""Heatmaps: a small picture of the data."""

from __future__ import annotations

import pytest

from clockhands.findings import Mark
from clockhands.report.figures.heatmap import _choose_step
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


@pytest.mark.parametrize(
    ("count", "room", "step"), [(8, 100, 1), (9, 100, 2), (50, 100, 10), (500, 300, 20), (30, 0, 500)]
)
def test_so_many_names_are_written_as_have_room(count: int, room: float, step: int) -> None:
    """Twelve points for each; steps are 1, 2, 5 and their tens."""
    assert _choose_step(count, room, 12.0) == step
