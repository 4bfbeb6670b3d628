"""The data of the linked picture: read back, they are the encoding, its cosines and where its hands stand."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import pytest
import torch

from clockhands.inspection.measures.encoding_view import MOST_NUMBERS, make_encoding_view
from clockhands.positions import count_up
from clockhands.schemes import Sinusoidal


def unpack(text: str, *shape: int) -> Any:
    return np.frombuffer(base64.b64decode(text), dtype=np.int8).reshape(shape) / 127


def test_rows_cosines_and_hands_are_those_of_the_encoding() -> None:
    rows_ND = torch.tensor([[math.sin(t), math.cos(t), math.sin(t / 5), math.cos(t / 5)] for t in range(1, 101)])
    view = make_encoding_view(3 * rows_ND, [(10 * math.pi, rows_ND[:, 2:]), (2 * math.pi, rows_ND[:, :2])], first=1)
    assert (view["kind"], view["first"], view["positions"], view["columns"]) == ("encoding", 1, 64, 4)
    values = unpack(view["values"], 64, 4) * view["scale"] * 127
    assert np.abs(values - 3 * rows_ND[:64].numpy()).max() < 3 / 127
    centred = rows_ND - rows_ND.mean(0)
    cosine = float(torch.nn.functional.cosine_similarity(centred[4], centred[9], dim=0))
    assert unpack(view["similarity"], 64, 64)[4, 9] == pytest.approx(cosine, abs=0.005)
    assert [round(hand["period"], 3) for hand in view["hands"]] == [6.283, 31.416], "the fastest first"
    x, y = unpack(view["hands"][0]["points"], 64, 2)[6]
    assert (x, y) == pytest.approx((math.sin(7), math.cos(7)), abs=0.01)


def test_a_wide_encoding_is_shown_at_fewer_positions() -> None:
    wide = Sinusoidal(4096).encode(count_up(1, 200))
    assert wide is not None
    view = make_encoding_view(wide.reshape(200, 4096), [], first=0)
    assert view["positions"] * view["columns"] <= MOST_NUMBERS and view["positions"] == 16
