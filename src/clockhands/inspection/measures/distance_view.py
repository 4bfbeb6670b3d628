"""The data of a page on which a reader moves the distance of two tokens: a head's curve, and the hands it turns.

Saved findings, and the script of the page, call this view ``kernel``; it has nothing to do with kernels of attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from clockhands.inspection.measures.base64_numbers import LARGEST_INT16, pack_int8, pack_int16
from clockhands.inspection.measures.rotation_hands import RotationHands
from clockhands.shapes import Float, Tensor

MOST_NUMBERS = 60_000
"""Values of all curves that a page carries, two bytes each; heads beyond are left out, and the page says so."""
FARTHEST = 64
"""The largest distance that is shown, in tokens either way."""
FORBIDDEN = -32768
"""Stands where the mask allows no pair of tokens at such a distance."""
ALIKE = 1e-3
"""Layers whose frequencies differ by no larger part rotate alike."""


def make_distance_view(
    curves: Sequence[Float[Tensor, "H J"]], hands: Sequence[RotationHands | None]
) -> dict[str, Any] | None:
    """Return the data of the page's view ``kernel``: plain values, for the ``details`` of a finding.

    Args:
        curves: the logit by distance of every layer and head, key position less query position from -(T-1) to T-1; NaN
            where the mask forbids it.
        hands: what ``read_rotation_hands`` returns of each layer.

    Returns:
        None where all curves are flat. Else ``kind``, the name of the view; ``first`` and ``last``, the distances
        between which there are values; ``left_out``, how many heads there is no room for, and ``strongest``, the index
        in ``heads`` of the one whose curve has the largest range; ``heads``, each with ``layer`` and ``head``
        (from 1), ``scale``, ``numbers`` (the logits in units of ``scale``, little-endian integers of 16 bits in base64)
        and ``weights`` (of each pair of channels in units of the largest / 127, integers of 8 bits in base64; empty
        where ``hands`` has None); ``kinds``, the ways in which the other layers rotate: their ``layers`` and
        ``frequencies`` in radians a token.
    """
    reach = min(FARTHEST, (curves[0].shape[-1] - 1) // 2)
    middle = (curves[0].shape[-1] - 1) // 2
    near = [curve_HJ[:, middle - reach : middle + reach + 1] for curve_HJ in curves]
    allowed = torch.cat(near).isfinite().any(0).nonzero().flatten()
    first, last = int(allowed[0]), int(allowed[-1])
    near = [curve_HJ[:, first : last + 1] for curve_HJ in near]
    all_heads = [(layer, head) for layer, curve_HJ in enumerate(near) for head in range(len(curve_HJ))]
    strength = {at: _measure_range(near[at[0]][at[1]]) for at in all_heads}
    if max(strength.values()) <= 0:
        return None
    room = max(1, MOST_NUMBERS // (last - first + 1))
    chosen = sorted(sorted(all_heads, key=lambda at: -strength[at])[:room])
    return {
        "kind": "kernel",
        "first": first - reach,
        "last": last - reach,
        "left_out": len(all_heads) - len(chosen),
        "strongest": chosen.index(max(chosen, key=strength.__getitem__)),
        "heads": [_pack_head(near[layer][head], hands[layer], layer, head) for layer, head in chosen],
        "kinds": group_layers(hands),
    }


def _measure_range(curve_J: Float[Tensor, " J"]) -> float:
    """Return the largest value of a curve less the smallest."""
    known = curve_J[curve_J.isfinite()]
    return float(known.max() - known.min()) if len(known) else 0.0


def _pack_head(curve_J: Float[Tensor, " J"], hands: RotationHands | None, layer: int, head: int) -> dict[str, Any]:
    """Return the numbers of one head."""
    known = curve_J.isfinite()
    scale = float(curve_J[known].abs().max()) / LARGEST_INT16 if bool(known.any()) else 0.0
    numbers = torch.where(known, (curve_J / (scale or 1.0)).nan_to_num(), float(FORBIDDEN))
    weights = None if hands is None else hands.weights_HF[head]
    packed = "" if weights is None else pack_int8(weights / weights.max().clamp_min(1e-30))
    return {"layer": layer + 1, "head": head + 1, "scale": scale, "numbers": pack_int16(numbers), "weights": packed}


def group_layers(hands: Sequence[RotationHands | None]) -> list[dict[str, Any]]:
    """Return the ways in which layers rotate, each with the numbers of its layers from 1, and its frequencies."""
    kinds: list[tuple[Tensor, list[int]]] = []
    for number, rotation in enumerate(hands, 1):
        if rotation is None:
            continue
        same = (layers for frequencies, layers in kinds if _rotate_alike(frequencies, rotation.frequencies_F))
        layers = next(same, None)
        if layers is None:
            kinds.append((rotation.frequencies_F, [number]))
        else:
            layers.append(number)
    return [{"layers": layers, "frequencies": frequencies.tolist()} for frequencies, layers in kinds]


def _rotate_alike(one_F: Float[Tensor, " F"], other_F: Float[Tensor, " F"]) -> bool:
    """Tell whether two layers rotate at the same frequencies, but for rounding."""
    return one_F.shape == other_F.shape and torch.allclose(one_F, other_F, rtol=ALIKE, atol=1e-7)
