"""Pairs of channels are ordered by the speed at which they turn, and layers that turn none are told apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.inspection.measures.rotated_pairs import estimate_frequencies, order_pairs
from clockhands.inspection.measures.rotation_frequencies import describe_resting_pairs
from clockhands.inspection.reading.capture import capture
from clockhands.model import PositionConfig
from clockhands.models.subject import Subject
from clockhands.scheme_pages.shown_options import complete_options

from ..tiny import tiny
from .readings import draw_ids, read_own


def _order(position: PositionConfig, layer: int = 0) -> list[int] | None:
    subject, recorded = read_own(position)
    order_F, _ = order_pairs(subject, recorded.layers[layer])
    return None if order_F is None else order_F.tolist()


def test_pairs_are_ordered_by_speed_and_not_by_number() -> None:
    """Learned factors turn the frequencies 1, 0.1, 0.01, 0.001 into 0.001, 0.01, 0.1, 1."""
    subject, _ = read_own(PositionConfig("rope", {"learned": True}))
    stack: Any = subject.model
    for scheme in dict.fromkeys(stack.schemes):
        with torch.no_grad():
            scheme.alpha_F.copy_(torch.tensor([1e-3, 1e-1, 1e1, 1e3]).log())
    recorded = capture(subject.model, subject.forward, draw_ids())
    order_F, resting = order_pairs(subject, recorded.layers[0])
    assert order_F is not None and order_F.tolist() == [3, 2, 1, 0] and resting == 0
    assert _order(PositionConfig("rope")) == [0, 1, 2, 3]


@pytest.mark.parametrize("scheme", ["ssmax", "temperature", "liere", "mixed", "fope"])
def test_what_rotates_no_pair_at_one_speed_has_no_order(scheme: str) -> None:
    """The first two scale queries, LieRE rotates blocks, and in the others a pair has several frequencies."""
    assert _order(PositionConfig(scheme, complete_options(scheme))) is None


def test_a_layer_without_rotation_has_no_order() -> None:
    assert _order(PositionConfig("rope", skip_every=2), layer=1) is None
    subject = Subject.of(tiny("smollm3"))
    recorded = capture(subject.model, subject.forward, draw_ids())
    first, second = (order_pairs(subject, layer)[0] for layer in recorded.layers)
    assert first is not None and first.tolist() == [0, 1, 2, 3] and second is None


@pytest.mark.parametrize("still", [0, 2])
def test_pairs_that_stand_still_are_counted_and_told(still: int) -> None:
    """The learned factors of some of four pairs make their frequencies zero."""
    subject, _ = read_own(PositionConfig("rope", {"learned": True}))
    stack: Any = subject.model
    for scheme in dict.fromkeys(stack.schemes):
        with torch.no_grad():
            scheme.alpha_F[4 - still :] = -1e4
    recorded = capture(subject.model, subject.forward, draw_ids())
    read = {index: order_pairs(subject, layer) for index, layer in enumerate(recorded.layers)}
    assert [resting for _, resting in read.values()] == [still, still]
    told = " In layers 1 and 2, 2 of 4 rotated pairs stand still: they see no position."
    assert describe_resting_pairs(read) == (told if still else "")


def test_a_pair_that_turns_at_two_speeds_has_none() -> None:
    """Three pairs, of which the last turns by 0.3 and by 0.7 in turn."""
    steps = torch.stack([torch.full((16,), 0.5), torch.zeros(16), torch.tensor([0.3, 0.7] * 8)], dim=-1)
    angle_TF = steps.double().cumsum(0)
    frequencies = estimate_frequencies(torch.polar(torch.ones_like(angle_TF), angle_TF)[None])
    assert frequencies[:2].tolist() == pytest.approx([0.5, 0.0]) and bool(frequencies[2].isnan())
