"""Stacked shares of the logits add up to what was split, and small groups are left out."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.measures.logit_figure import draw_shares
from clockhands.inspection.reading.logit_parts import TERMS
from clockhands.inspection.reading.term_groups import CONTENT, DISTANCE


def _shares(**terms: float) -> torch.Tensor:
    names = {"content": "content–content", "curve": "constant–constant", "bias": "added, constant"}
    shares = torch.zeros(len(TERMS), dtype=torch.float64)
    for name, share in terms.items():
        shares[TERMS.index(names[name])] = share
    return shares


def test_terms_of_one_group_are_stacked_as_one() -> None:
    columns = [_shares(content=0.7, curve=0.1, bias=0.2), _shares(content=0.999, bias=0.001)]
    marks = draw_shares(["1", "2"], columns, "layer", None).panels[0].marks
    assert {mark.label: mark.y for mark in marks} == {
        CONTENT: pytest.approx((0.7, 0.999)),
        DISTANCE: pytest.approx((0.3, 0.001)),
    }


def test_a_group_that_is_small_everywhere_is_left_out() -> None:
    marks = draw_shares(["1"], [_shares(content=0.999, bias=0.001)], "layer", [0.4]).panels[0].marks
    assert [(mark.label, mark.kind) for mark in marks] == [
        (CONTENT, "stack"),
        ("position alone, untrained", "points"),
    ]
    assert marks[1].y == (pytest.approx(0.4),) and marks[1].emphasis == "reference"
