"""The rotation of a layer is read from its vectors as its configuration says it is."""

from __future__ import annotations

import math

import pytest
import torch

from clockhands.inspection.measures.rotation_hands import RotationHands, read_rotation_hands
from clockhands.inspection.reading.capture import capture
from clockhands.inspection.reading.logit_parts import split_first_batch
from clockhands.models.subject import Subject

from ..tiny import tiny
from .readings import draw_ids


def read(name: str) -> list[RotationHands | None]:
    subject = Subject.of(tiny(name))
    recorded = capture(subject.model, subject.forward, draw_ids())
    return [read_rotation_hands(subject, layer, split_first_batch(layer)) for layer in recorded.layers]


@pytest.mark.parametrize(
    "name, frequencies",
    [
        ("llama", [1, 0.1, 0.01, 0.001]),  # base 10,000, heads of 8 channels
        ("gpt-j", [1, 0.01]),  # 4 of 8 channels, neighbours paired
        ("llama-yarn", [1, 0.025, 0.0025, 0.00025]),
    ],
)
def test_frequencies_are_those_of_the_configuration(name: str, frequencies: list[float]) -> None:
    for hands in read(name):
        assert hands is not None
        assert hands.frequencies_F.tolist() == pytest.approx(frequencies, rel=1e-3)


def test_kinds_of_layers_turn_at_their_own_speeds() -> None:
    """ModernBERT: base 160,000 in layers that see all, 10,000 in those that see a few tokens; SmolLM3: one without."""
    wide, local = read("modernbert")
    assert wide is not None and local is not None
    assert wide.frequencies_F.tolist() == pytest.approx([160_000 ** -(f / 4) for f in range(4)], rel=1e-3)
    assert local.frequencies_F.tolist() == pytest.approx([10_000 ** -(f / 4) for f in range(4)], rel=1e-3)
    assert read("smollm3")[1] is None


def test_a_model_that_rotates_nothing_has_no_hands() -> None:
    assert read("gpt2") == [None, None]


def test_weights_bound_what_the_pairs_add_to_the_constant_logit() -> None:
    """|q·k| of the constant part at any distance is at most the sum over pairs of |q_f| |k_f|, as Cauchy has it."""
    subject = Subject.of(tiny("llama"))
    layer = capture(subject.model, subject.forward, draw_ids()).layers[0]
    hands = read_rotation_hands(subject, layer, split_first_batch(layer))
    assert hands is not None
    mean = layer.inputs_NTD[1::2].double().mean((0, 1)).float().expand(1, layer.inputs_NTD.shape[1], -1)
    call = layer.replay(mean)
    products = call.q_BHSK[0] @ call.k_BHTK[0].transpose(-1, -2) / math.sqrt(8)
    bound = hands.weights_HF.sum(-1)
    assert bool((products.abs().amax((1, 2)) <= bound * (1 + 1e-4)).all())
    assert bool((products.abs().amax((1, 2)) >= bound * 0.1).all()), "and it is no idle bound"
    assert bool(torch.isfinite(hands.weights_HF).all())
