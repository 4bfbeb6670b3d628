"""The data of a page on which a reader moves the position: rows of an encoding, their similarity, and its hands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clockhands.inspection.measures.base64_numbers import LARGEST_INT8, pack_int8
from clockhands.shapes import Float, Tensor

MOST_POSITIONS = 64
"""Positions that are shown."""
MOST_NUMBERS = 65_536
"""Values of an encoding that a page carries, one byte each: a wide one is shown at fewer positions."""


def make_encoding_view(
    rows_ND: Float[Tensor, "N D"], hands: Sequence[tuple[float, Float[Tensor, "N two"]]], first: int
) -> dict[str, Any]:
    """Return the data of the page's view ``encoding``: plain values, for the ``details`` of a finding.

    Args:
        rows_ND: the encoding, one row a position.
        hands: the period of each hand in positions, and where it stands at every position.
        first: the position of the first row.

    Returns:
        ``kind``, the name of the view; ``first``, the position of the first row; ``positions`` and ``columns``, how
        many rows and channels are shown; ``values`` [positions, columns] in units of ``scale``; ``similarity``, the
        cosines [positions, positions] of the rows less their mean, in units of 1 / 127; ``hands``, the fastest first,
        each with its ``period`` and ``points`` [positions, 2] in units of its radius / 127. Values, cosines and points
        are integers of 8 bits in base64.
    """
    count = min(len(rows_ND), MOST_POSITIONS, max(2, MOST_NUMBERS // rows_ND.shape[1]))
    rows = rows_ND[:count].double()
    centred = rows - rows_ND.double().mean(0)
    unit = centred / centred.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    largest = float(rows.abs().max()) or 1.0
    return {
        "kind": "encoding",
        "first": first,
        "positions": count,
        "columns": rows.shape[1],
        "scale": largest / LARGEST_INT8,
        "values": pack_int8(rows / largest),
        "similarity": pack_int8(unit @ unit.T),
        "hands": [
            {"period": float(period), "points": pack_int8(orbit_N2[:count] / _measure_radius(orbit_N2[:count]))}
            for period, orbit_N2 in sorted(hands, key=lambda hand: hand[0])
        ],
    }


def _measure_radius(orbit_N2: Float[Tensor, "N two"]) -> float:
    """Return the largest distance of a hand's points from its centre."""
    return float(orbit_N2.norm(dim=-1).max()) or 1.0
