"""The pictures of the answers: what stands above each is not cut off."""

from __future__ import annotations

from mechanisms import PICTURES


def test_every_message_fits_its_picture() -> None:
    cut = []
    for name, draw in PICTURES.items():
        figure = draw()
        figure.canvas.draw()
        title = figure._suptitle.get_window_extent()
        if title.x0 < 0 or title.x1 > figure.bbox.width:
            cut.append(name)
    assert PICTURES and cut == []
