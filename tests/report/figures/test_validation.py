"""Figures that contradict themselves are refused with their place."""

from __future__ import annotations

import re

import pytest

from clockhands.errors import DataError
from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures import draw
from tests.report.figures.svg_tree import KINDS, forged

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
