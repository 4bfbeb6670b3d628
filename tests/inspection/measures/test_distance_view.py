"""The data of the view of distance: the curves as they are, the layers grouped by how they rotate."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import torch

from clockhands.inspection.measures import distance_view
from clockhands.inspection.measures.distance_view import FARTHEST, FORBIDDEN, group_layers, make_distance_view
from clockhands.inspection.measures.rotation_hands import RotationHands


def unpack(text: str) -> list[int]:
    return np.frombuffer(base64.b64decode(text), "<i2").tolist()


def turn(*frequencies: float) -> RotationHands:
    return RotationHands(torch.tensor(frequencies, dtype=torch.float64), torch.ones(2, len(frequencies)))


def test_a_causal_curve_has_the_past_alone_and_holes_stay_holes() -> None:
    offsets = torch.arange(-99, 100).double()
    slopes = torch.stack([offsets, offsets / 2])
    slopes[:, 100:] = torch.nan
    slopes[1, :90] = torch.nan  # a window of 10 tokens
    view = make_distance_view([slopes], [None])
    assert view is not None and view["kinds"] == [] and (view["first"], view["last"]) == (-FARTHEST, 0)
    steep, window = view["heads"]
    assert view["strongest"] == 0 and steep["weights"] == ""
    assert [round(value * steep["scale"], 2) for value in unpack(steep["numbers"])] == list(range(-64, 1))
    assert unpack(window["numbers"])[:55] == [FORBIDDEN] * 55
    assert round(unpack(window["numbers"])[55] * window["scale"], 3) == -4.5


def test_flat_curves_have_no_view() -> None:
    assert make_distance_view([torch.zeros(2, 9)], [None]) is None


def test_heads_beyond_the_room_of_a_page_are_those_where_distance_does_least(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = torch.linspace(-1, 1, 9).double() * torch.tensor([[1.0], [3.0], [2.0]])
    monkeypatch.setattr(distance_view, "MOST_NUMBERS", 18)
    view = make_distance_view([curve], [None])
    assert view is not None and view["left_out"] == 1
    assert [head["head"] for head in view["heads"]] == [2, 3] and view["strongest"] == 0


def test_layers_that_rotate_alike_are_one_kind() -> None:
    kinds = group_layers([turn(1, 0.1), turn(1, 0.01), None, turn(1, 0.1)])
    assert [kind["layers"] for kind in kinds] == [[1, 4], [2]]
    assert kinds[1]["frequencies"] == [1, 0.01]
