"""Which pairs of channels an attention layer rotates, how fast each turns, and the layer without its rotation."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from clockhands.inspection.reading.layer import Layer
from clockhands.model.attention import AttentionContext
from clockhands.models.subject import Subject
from clockhands.schemes import Composition, NoPosition, RoPE
from clockhands.shapes import Bool, Float, Int, Num, Tensor

COHERENCE = 0.99
"""A pair turns at one speed if its steps from one position to the next agree at least so well (1: exactly)."""
STANDING_STILL = 1e-8
"""A pair that turns by fewer radians a token counts as one that stands still: rounding in a window is as large."""
LEAST_READ = 1e-6
"""Pairs of this part of the largest length, or less, are not read: the angle of zeros would be noise."""


def find_rotated_width(subject: Subject, layer: Layer, width: int) -> int:
    """Return how many of the ``width`` channels of a head rotate: those that partial rotary leaves alone come last."""
    if layer.scheme is not None:
        parts = layer.scheme.parts if isinstance(layer.scheme, Composition) else (layer.scheme,)
        ropes = [part for part in parts if isinstance(part, RoPE)]
        return ropes[0].channels if ropes else width
    rotary = getattr(getattr(subject.model, "config", None), "rotary_dim", None)
    if isinstance(rotary, int):
        return rotary
    for name, buffer in subject.model.named_buffers():
        if name.endswith("inv_freq"):
            return 2 * len(buffer)
    return width


def remove_rotation(layer: Layer) -> Layer | None:
    """Return the same layer with all angles zero; None where the angles are not among its arguments.

    A layer of this project is given no scheme, one of transformers cosines of 1 (times any factor) and sines of 0.
    """
    contexts = [arg for arg in layer.args if isinstance(arg, AttentionContext)]
    if contexts:
        args = tuple(replace(arg, scheme=NoPosition()) if arg is contexts[0] else arg for arg in layer.args)
        return replace(layer, args=args)
    angles = layer.kwargs.get("position_embeddings")
    if not isinstance(angles, tuple) or len(angles) != 2:
        return None
    cos, sin = angles
    zero_angles = ((cos**2 + sin**2).sqrt(), torch.zeros_like(sin))
    return replace(layer, kwargs={**layer.kwargs, "position_embeddings": zero_angles})


def pair_channels(vectors_HTK: Float[Tensor, "H T K"], interleaved: bool) -> Num[Tensor, "H T F"]:
    """Return the F = K / 2 pairs of channels that rotate together as complex numbers, in float64, on the CPU."""
    vectors = vectors_HTK.double().cpu()
    pairs = vectors.unflatten(-1, (-1, 2)) if interleaved else vectors.unflatten(-1, (2, -1)).transpose(-1, -2)
    return torch.view_as_complex(pairs.contiguous())


def estimate_frequencies(rotating_HTF: Num[Tensor, "H T F"]) -> Float[Tensor, " F"]:
    """Return by how many radians every pair turns from one position to the next; NaN for a pair without one speed.

    A pair has none that turns by different angles from place to place or from head to head, or is zero. The step of one
    position gives a first value, steps of 2, 4, 8, ... refine it.
    """
    sizes = rotating_HTF.abs()
    readable = sizes > LEAST_READ * sizes.amax()
    unit = torch.where(readable, rotating_HTF / sizes.clamp_min(1e-30), 0)
    frequencies_F = torch.zeros(rotating_HTF.shape[-1], dtype=torch.float64)
    coherent_F = torch.ones(rotating_HTF.shape[-1], dtype=torch.bool)
    for power in range(max(1, int(math.log2(rotating_HTF.shape[1])))):
        lag = 2**power
        expected = torch.polar(torch.ones_like(frequencies_F), frequencies_F * lag)
        steps = (unit[:, lag:] * unit[:, :-lag].conj()).sum((0, 1)) * expected.conj()
        counts = (readable[:, lag:] & readable[:, :-lag]).sum((0, 1))
        coherent_F &= steps.abs() >= COHERENCE * counts.clamp_min(1)
        frequencies_F = frequencies_F + steps.angle() / lag
    frequencies_F = frequencies_F.abs()
    frequencies_F = torch.where(frequencies_F < STANDING_STILL, 0.0, frequencies_F)
    return frequencies_F.masked_fill(~coherent_F, torch.nan)


def measure_turns(subject: Subject, layer: Layer) -> tuple[Float[Tensor, " F"], Bool[Tensor, " F"]] | None:
    """Return how fast every pair of a layer turns (NaN without one speed), and which pairs are zero.

    It is read from queries and keys with and without the rotation; None where that cannot be taken away, or where
    tokens choose positions.
    """
    rotated = layer.replay(layer.inputs_NTD[:1])
    unrotated_layer = None if layer.locates_tokens else remove_rotation(layer)
    if unrotated_layer is None:
        return None
    unrotated = unrotated_layer.replay(layer.inputs_NTD[:1])
    if unrotated.q_BHSK.shape != rotated.q_BHSK.shape:  # PoPE makes a pair of every channel
        return None
    width = find_rotated_width(subject, layer, rotated.q_BHSK.shape[-1])
    turns_HTF = torch.cat(
        [
            pair_channels(after[0, ..., :width], subject.interleaved)
            * pair_channels(before[0, ..., :width], subject.interleaved).conj()
            for before, after in ((unrotated.q_BHSK, rotated.q_BHSK), (unrotated.k_BHTK, rotated.k_BHTK))
        ]
    )
    zero_F = turns_HTF.abs().amax((0, 1)) <= LEAST_READ * turns_HTF.abs().amax()
    return estimate_frequencies(turns_HTF), zero_F


def order_pairs(subject: Subject, layer: Layer) -> tuple[Int[Tensor, " F"] | None, int]:
    """Return the numbers of the pairs that a layer rotates, the fastest first, and how many of them stand still.

    The numbers are None unless each pair has one speed. Where the speeds cannot be read, or a pair is zero, pairs are
    in the order of their channels, as RoPE has them, and none is said to stand still.
    """
    turns = measure_turns(subject, layer)
    if turns is None:
        width = find_rotated_width(subject, layer, layer.replay(layer.inputs_NTD[:1]).q_BHSK.shape[-1])
        return torch.arange(width // 2), 0
    frequencies_F, zero_F = turns
    known = frequencies_F[~zero_F]
    if bool(known.isnan().any()) or not bool(known.any()):
        return None, 0
    order_F = torch.arange(len(zero_F)) if bool(zero_F.any()) else frequencies_F.argsort(descending=True, stable=True)
    return order_F, int((known == 0).sum())
