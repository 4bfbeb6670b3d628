"""The picture of clock hands: the orbits of some of them, position by position."""

from __future__ import annotations

import math

from clockhands.findings import Figure, Panel
from clockhands.inspection.drawing import make_mark
from clockhands.shapes import Tensor

MOST_ORBITS = 4
"""Hands that are drawn."""
MOST_DOTS = 64
"""Positions that are drawn of each hand."""


def draw_hands(hands: list[tuple[float, Tensor]]) -> Figure | None:
    """Draw the orbits of up to four hands, spread over the range of periods; None if there are none.

    ``hands`` holds the period of each hand, in tokens per turn, and its orbit: [N, 2], from position 1 on.
    """
    if not hands:
        return None
    ordered = sorted(hands, key=lambda hand: hand[0])
    step = max(1, math.ceil(len(ordered) / MOST_ORBITS))
    caption = f"At most two turns, and at most {MOST_DOTS} positions of them; point at a dot for its position."
    return Figure(tuple(_draw_orbit(*hand) for hand in ordered[::step]), caption=caption, columns=2, height=1.0,
                  title="The path of single hands, position by position")  # fmt: skip


def _draw_orbit(period: float, orbit_N2: Tensor) -> Panel:
    """Draw one hand for two turns at most."""
    steps = min(len(orbit_N2), 1 + math.ceil(2 * period))
    rows = range(0, steps, max(1, math.ceil(steps / MOST_DOTS)))
    points = orbit_N2[list(rows)]
    edge = 1.08 * float(points.abs().max())
    return Panel(
        (
            make_mark("line", points[:, 0], points[:, 1], emphasis="main"),
            make_mark("points", points[:, 0], points[:, 1], names=tuple(f"position {row + 1}" for row in rows)),
        ),
        title=f"{period:,.1f} tokens per turn",
        xlabel="along the hand's first axis",
        ylabel="along its second axis",
        xlim=(-edge, edge),
        ylim=(-edge, edge),
        equal=True,
    )
