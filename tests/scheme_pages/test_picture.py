"""The pictures of schemes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from clockhands.findings import Figure, Mark
from clockhands.scheme_pages.picture import PICTURE_SIZES, _compute_effect, _make_encoding_panel, make_figure
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE, Index, Sinusoidal, build

CHANGES_NOTHING = {"none": "no position: every key is treated alike at any distance, which is what its picture says"}
"""Schemes of which both panels are flat."""


@cache
def draw_once(name: str) -> Figure:
    """The figure of a scheme as it stands on its page, which several tests look at; nobody changes it."""
    return make_figure(name)


def list_seen(mark: Mark) -> list[Any]:
    """Return the values of a line, or of the cells of a heatmap of which the key is not after the query."""
    if mark.kind == "line":
        return list(mark.y)
    return [value for query, row in enumerate(mark.z) for value in row[: query + 1]]


def varies(mark: Mark) -> bool:
    """Tell whether a mark has two values that differ, or hides some keys and shows others."""
    values = list_seen(mark)
    shown = [value for value in values if value is not None]
    return max(shown) - min(shown) > 1e-6 or len(shown) < len(values)


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_panel_of_a_figure_shows_something(name: str) -> None:
    panels = draw_once(name).panels
    assert len(panels) == 2
    for panel in panels:
        marks = [mark for mark in panel.marks if mark.kind in ("line", "heatmap")]
        assert any(varies(mark) for mark in marks) == (name not in CHANGES_NOTHING), panel.title
        assert not any(value is not None and math.isnan(value) for mark in marks for value in list_seen(mark))


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_key_is_drawn_only_where_it_may_be_attended_to(name: str) -> None:
    """Later keys are hidden by the causal mask, and those of three schemes as their equations say."""
    scheme = build(CATALOGUE, name, PICTURE_SIZES, complete_options(name))
    if "encode" in scheme.active_hooks():
        return
    sees = {
        "window": lambda query, key: query - key <= 11,
        "composition": lambda query, key: query - key <= 11,
        "chunks": lambda query, key: query // 12 == key // 12,
    }.get(name, lambda query, key: True)
    curve, place = draw_once(name).panels
    for query, row in enumerate(place.marks[0].z):
        drawn = [value is not None for value in row]
        assert drawn == [key <= query and sees(query, key) for key in range(len(row))]
    lines = [mark for mark in curve.marks if mark.kind == "line"]
    last = len(lines[0].y) - 1
    for line in lines:
        assert [value is not None for value in line.y] == [sees(last, last - distance) for distance in range(last + 1)]
    bands = [mark for mark in curve.marks if mark.kind == "band"]
    hidden = [not sees(last, last - distance) for distance in range(last + 1)]
    assert [[not math.isnan(low) for low in band.low] for band in bands] == ([hidden] if any(hidden) else [])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("temperature", lambda p: 1 + 0.1 * math.log(1 + (p + 1) // 8)),
        ("ssmax", lambda p: 0.168 * math.log(p + 1)),
        ("sinks", lambda p: (p + 1) * math.e / ((p + 1) * math.e + 1)),
        ("stick-breaking", lambda r: math.e / (1 + math.e) ** r if r else 0.0),
    ],
)
def test_what_acts_on_whole_rows_is_drawn_as_its_equation_says(name: str, expected: Callable[[int], float]) -> None:
    """Factors and the share of all keys by the query's position; weights by distance. Scores are 1, the sink's is 0."""
    panel = draw_once(name).panels[0]
    assert panel.marks[0].y == pytest.approx([expected(place) for place in range(64)], abs=1e-5)
    assert panel.xlabel.startswith("distance" if name == "stick-breaking" else "position of the query")


def test_weights_by_position_are_those_of_keys_and_sink() -> None:
    for query, row in enumerate(draw_once("sinks").panels[1].marks[0].z):
        assert row[: query + 1] == pytest.approx([math.e / ((query + 1) * math.e + 1)] * (query + 1), abs=1e-6)


def test_a_factor_that_is_the_same_everywhere_is_drawn_as_it_is() -> None:
    panel = make_figure("temperature", {"form": "constant", "factor": 4}).panels[0]
    assert panel.marks[0].y == pytest.approx([1 + 0.1 * math.log(4)] * 64)


def test_a_token_that_places_itself_far_off_is_seen_in_its_row_and_column() -> None:
    """Logits of equal content fall with the distance of two places, whatever the order of the tokens."""
    cells = draw_once("repo").panels[1].marks[0].z
    whole = [[cells[max(i, j)][min(i, j)] or 0.0 for j in range(32)] for i in range(32)]
    sums = [sum(row) for row in whole]
    far, near = sums.index(min(sums)), sums.index(max(sums))
    assert max(max(row) for row in whole) == pytest.approx(0.0, abs=1e-5)
    assert sum(whole[far][i] < whole[near][i] for i in range(32) if i not in (far, near)) > 24


def test_what_depends_on_distance_alone_is_alike_along_diagonals() -> None:
    for name, options in (("rope", {}), ("alibi", {}), ("rerope", {"window": 8})):
        logits = _compute_effect(build(CATALOGUE, name, PICTURE_SIZES, options).eval()).values_HSS[0]
        assert all(float(logits.diagonal(-r).std()) < 1e-4 for r in range(1, 30)), name
    steps = _compute_effect(build(CATALOGUE, "self-extend", PICTURE_SIZES, {"window": 4, "group": 4}).eval())
    assert float(steps.values_HSS[0].diagonal(-9).std()) > 1e-3, "groups begin at position 0"


def test_a_caption_says_what_is_drawn() -> None:
    assert draw_once("window").caption.endswith("; hatched: later keys and those that are hidden")
    assert draw_once("rope").caption.endswith(": later keys")
    assert draw_once("cope").caption.startswith("cope, drawn from N(0, 0.02²) where it starts at 0, with 8 heads")
    assert draw_once("mrope").caption.endswith("; positions go along the last of 3 axes")
    assert "attention weights, where" in make_figure("composition", {"schemes": ["rope", "sinks"]}).caption


def test_colours_diverge_from_zero_where_there_are_values_on_both_sides() -> None:
    """Sinusoids are on both sides; the index is never below 0."""
    diverging = [_make_encoding_panel(scheme).marks[0].diverging for scheme in (Sinusoidal(8), Index(8))]
    assert diverging == [True, False]


def test_how_alike_two_positions_are_is_the_mean_cosine_of_their_hands() -> None:
    """The index begins at zero, which is like nothing, so that its last row is compared: all others point its way."""
    width = PICTURE_SIZES.width
    speeds = [10_000 ** (-2 * c / width) for c in range(width // 2)]
    curve, index = (draw_once(name).panels[1].marks[0].y for name in ("sinusoidal", "index"))
    expected = [sum(math.cos(speed * r) for speed in speeds) / len(speeds) for r in range(len(curve))]
    assert curve == pytest.approx(expected, abs=1e-5)
    assert index == pytest.approx([1.0] * (len(index) - 1) + [0.0])
