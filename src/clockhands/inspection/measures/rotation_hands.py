"""The frequencies at which an attention layer rotates its queries and keys, as read from the rotated vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from clockhands.inspection.measures.rotation_frequencies import find_rotated_width
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_parts import split_by_batch
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Float, Tensor

COHERENCE = 0.99
"""A pair turns at one speed if its steps from one position to the next agree at least so well (1: exactly)."""
STANDING_STILL = 1e-8
"""A pair that turns by fewer radians a token counts as one that stands still: rounding in a window is as large."""


@dataclass(frozen=True)
class RotationHands:
    """How a layer rotates: radians a token of each pair of channels, and what each pair can do to a head's logits.

    ``weights_HF`` are s |q_f| |k_f| of the constant part, the mean over positions: the most that the pair adds.
    """

    frequencies_F: Float[Tensor, " F"]
    weights_HF: Float[Tensor, "H F"]


def read_rotation_hands(subject: Subject, layer: Layer) -> RotationHands | None:
    """Read the rotation of a layer from its constant queries and keys, which turn and do nothing else.

    None where nothing turns, where some pair turns at a speed that varies or differs between heads, and where it is not
    known which channels are paired.
    """
    if "rotary" not in subject.mechanisms or subject.has_unlisted_architecture:
        return None
    _, parts = next(split_by_batch(layer))
    width = find_rotated_width(subject, layer, parts.q["constant"].shape[-1])
    queries, keys = (
        _pair_channels(part["constant"][0, ..., :width].double().cpu(), subject.interleaved)
        for part in (parts.q, parts.k)
    )
    frequencies_F = _estimate_frequencies(torch.cat([queries, keys]))
    if frequencies_F is None or not bool(frequencies_F.any()):
        return None
    return RotationHands(frequencies_F, abs(layer.scale) * queries.abs().mean(1) * keys.abs().mean(1))


def _pair_channels(vectors_HTK: Float[Tensor, "H T K"], interleaved: bool) -> Tensor:
    """Return the pairs of channels that rotate together as complex numbers: [H, T, F]."""
    pairs = vectors_HTK.unflatten(-1, (-1, 2)) if interleaved else vectors_HTK.unflatten(-1, (2, -1)).transpose(-1, -2)
    return torch.view_as_complex(pairs.contiguous())


def _estimate_frequencies(rotating_HTF: Tensor) -> Float[Tensor, " F"] | None:
    """Return by how many radians every pair turns from one position to the next; None if some pair has no one speed.

    The step of one position gives a first value, steps of 2, 4, 8, ... refine it.
    """
    sizes = rotating_HTF.abs()
    readable = sizes > 1e-6 * sizes.amax()  # the angle of a pair of zeros would be noise
    unit = torch.where(readable, rotating_HTF / sizes.clamp_min(1e-30), 0)
    frequencies_F = torch.zeros(rotating_HTF.shape[-1], dtype=torch.float64)
    for power in range(max(1, int(math.log2(rotating_HTF.shape[1])))):
        lag = 2**power
        expected = torch.polar(torch.ones_like(frequencies_F), frequencies_F * lag)
        steps = (unit[:, lag:] * unit[:, :-lag].conj()).sum((0, 1)) * expected.conj()
        counts = (readable[:, lag:] & readable[:, :-lag]).sum((0, 1))
        if bool((steps.abs() < COHERENCE * counts.clamp_min(1)).any()):
            return None
        frequencies_F = frequencies_F + steps.angle() / lag
    frequencies_F = frequencies_F.abs()
    return torch.where(frequencies_F < STANDING_STILL, 0.0, frequencies_F)
