"""The pictures of the answers: no letter of one is cut off, and none is too small on a phone."""

from __future__ import annotations

import pytest
from mechanisms import PICTURES

PHONE, LEAST = 358 / 96, 7.5
"""Inches of a picture in a window of 390 pixels, and the least points that a letter has there."""


@pytest.mark.parametrize("name", PICTURES)
def test_every_word_is_inside_and_large_enough(name: str) -> None:
    figure = PICTURES[name]()
    figure.draw_without_rendering()
    written = [figure._suptitle, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        legend = axes.get_legend()
        written += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        written += legend.get_texts() if legend else []
    for text in (text for text in written if text.get_text()):
        extent = text.get_window_extent()
        assert extent.x0 >= 0 and extent.x1 <= figure.bbox.width, text.get_text()
        assert text.get_fontsize() * PHONE / figure.get_size_inches()[0] >= LEAST, text.get_text()
