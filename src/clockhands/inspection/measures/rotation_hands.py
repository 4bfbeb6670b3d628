"""The frequencies at which an attention layer rotates its queries and keys, as read from the rotated vectors."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.inspection.measures.rotated_pairs import estimate_frequencies, find_rotated_width, pair_channels
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_parts import LogitParts
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Tensor


@dataclass(frozen=True)
class RotationHands:
    """How a layer rotates: radians a token of each pair of channels, and what each pair can do to a head's logits.

    ``weights_HF`` are s |q_f| |k_f| of the constant part, the mean over positions: the most that the pair adds.
    """

    frequencies_F: Float[Tensor, " F"]
    weights_HF: Float[Tensor, "H F"]


def read_rotation_hands(subject: Subject, layer: Layer, parts: LogitParts) -> RotationHands | None:
    """Read the rotation of a layer from its constant queries and keys (``parts``), which turn and do nothing else.

    None where nothing turns, where some pair turns at a speed that varies or differs between heads, and where it is not
    known which channels are paired.
    """
    if "rotary" not in subject.mechanisms or subject.has_unlisted_architecture:
        return None
    width = find_rotated_width(subject, layer, parts.q["constant"].shape[-1])
    queries, keys = (
        pair_channels(part["constant"][0, ..., :width], subject.interleaved) for part in (parts.q, parts.k)
    )
    frequencies_F = estimate_frequencies(torch.cat([queries, keys]))
    if bool(frequencies_F.isnan().any()) or not bool(frequencies_F.any()):
        return None
    return RotationHands(frequencies_F, abs(layer.scale) * queries.abs().mean(1) * keys.abs().mean(1))
