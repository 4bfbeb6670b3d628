"""Clock hands: pairs of coordinates of the position table that turn at constant speed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import listed, mark, skip
from clockhands.inspection.measures.table import rows_in_use
from clockhands.inspection.numbers import linear_fit
from clockhands.inspection.subject import Subject
from clockhands.shapes import Float, Tensor

QUESTION = "Does the table hold clock hands?"
METHOD = (
    "For every pair among the 16 leading principal components of the table the angle atan2(y, x) is unwrapped "
    "along the sequence and a line fitted to it; a pair is a hand if R² > 0.9, if its steps are alike (mean "
    "resultant length above 0.8), if it makes at least one full turn, and if its radius varies by less than half "
    "and its two components are as strong as each other (within 15 %). Components are used once, the straightest "
    "pair first. Fixed sinusoids need no components: their own pairs of columns are read, and every hand must "
    "turn at exactly constant speed. Null: the same rows in random order, where an unwrapped angle is a random "
    "walk and can look straight, but never steady."
)
MOST_DOTS = 64
LEADING = 16


@dataclass(frozen=True)
class Hand:
    """Two coordinates that turn together: tokens per turn, and how much like a clock.

    ``straightness`` is R² of the angle against position, ``steadiness`` the mean resultant length of its steps (1: all
    steps equal), ``wobble`` the radius' standard deviation over its mean.
    """

    first: int
    second: int
    period: float
    straightness: float
    steadiness: float
    wobble: float
    orbit_T2: Float[Tensor, "T two"]


def hand_of(orbit_T2: Float[Tensor, "T two"], first: int = 0, second: int = 1) -> Hand:
    """Measure one pair of coordinates."""
    angle = torch.atan2(orbit_T2[:, 1], orbit_T2[:, 0])
    turn = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
    slope, straightness = linear_fit(torch.cat([angle[:1], angle[0] + turn.cumsum(0)]))
    radius = orbit_T2.norm(dim=-1)
    wobble = float(radius.std() / radius.mean().clamp_min(1e-30))
    steadiness = float(torch.polar(torch.ones_like(turn), turn).mean().abs())
    return Hand(first, second, 2 * math.pi / max(abs(slope), 1e-12), straightness, steadiness, wobble, orbit_T2)


def find_hands(rows_PD: Float[Tensor, "P D"]) -> list[Hand]:
    """Hands among the principal components, the straightest first."""
    u, s, _ = torch.linalg.svd(rows_PD - rows_PD.mean(0), full_matrices=False)
    points = (u * s)[:, : min(LEADING, int((s > 1e-6 * s[0]).sum()))]
    width = points.shape[1]
    pairs = [hand_of(points[:, [i, j]], i, j) for i in range(width) for j in range(i + 1, width)]
    found: list[Hand] = []
    used: set[int] = set()
    for hand in sorted(pairs, key=lambda hand: -hand.straightness):
        if _is_hand(hand) and not {hand.first, hand.second} & used:
            found.append(hand)
            used |= {hand.first, hand.second}
    return found


def _is_hand(hand: Hand) -> bool:
    even = hand.straightness > 0.9 and hand.steadiness > 0.8 and hand.wobble < 0.5
    spread = hand.orbit_T2.std(0)
    round_enough = bool(spread.min() > 0.85 * spread.max())
    return even and round_enough and hand.period <= len(hand.orbit_T2)


def exact_hands(rows_PD: Float[Tensor, "P D"]) -> list[Hand]:
    """The hands of a fixed sinusoid, read from its own columns; empty if they are not paired in a known way."""
    width = rows_PD.shape[1] // 2
    layouts = [
        [(2 * i, 2 * i + 1) for i in range(width)],
        [(i, i + width) for i in range(width)],
    ]
    for pairs in layouts:
        hands = [hand_of(rows_PD[:, [i, j]], i, j) for i, j in pairs]
        if all(hand.straightness > 0.9999 and hand.wobble < 1e-3 for hand in hands):
            return hands
    return []


def hands(subject: Subject) -> Finding:
    """How many hands the table holds, and how fast they turn."""
    rows, tables = rows_in_use(subject), subject.tables()
    if rows is None or tables is None:
        return skip("table.hands", QUESTION, subject.absent("There is no position table to look at."))
    exact = exact_hands(tables.positions_PD[:256].double()) if "sinusoid" in subject.mechanisms else []
    found = exact or find_hands(rows)
    generator = torch.Generator().manual_seed(0)
    chance = sum(len(find_hands(rows[torch.randperm(len(rows), generator=generator)])) for _ in range(5)) / 5
    return Finding(
        name="table.hands",
        question=QUESTION,
        verdict=_verdict(found, bool(exact), chance),
        value=float(len(found)),
        references=(Reference("rows shuffled", chance),),
        unit="hands",
        light="good" if len(found) > chance else "info",
        table=Table.of(
            (
                "first coordinate",
                "second coordinate",
                "tokens per turn",
                "R² of the angle",
                "steadiness of the steps",
                "variation of the radius",
            ),
            [(hand.first, hand.second, hand.period, hand.straightness, hand.steadiness, hand.wobble) for hand in found],
        ),
        figure=_figure(found) if found else None,
        method=METHOD,
        source="Vaswani et al. 2017, section 3.5; for learned tables Yamamoto & Matsuzaki 2023",
    )


def _verdict(found: list[Hand], exact: bool, chance: float) -> str:
    if not found:
        return f"No pair of components turns at constant speed (shuffled rows give {chance:.1f} such pairs)."
    if exact:
        periods = sorted(hand.period for hand in found)
        reach = f"{periods[0]:.1f} to {periods[-1]:,.0f}"
        return f"All {len(found)} pairs turn at exactly constant speed, once in {reach} tokens."
    number = f"{len(found)} hands turn" if len(found) > 1 else "One hand turns"
    periods_text = listed(f"{hand.period:.1f}" for hand in sorted(found, key=lambda hand: hand.period))
    return f"{number} at constant speed, once in {periods_text} tokens (shuffled rows give {chance:.1f})."


def _figure(found: list[Hand]) -> Figure:
    """The orbits of up to four hands, spread over the range of periods."""
    ordered = sorted(found, key=lambda hand: hand.period)
    step = max(1, math.ceil(len(ordered) / 4))
    caption = f"At most two turns, and at most {MOST_DOTS} positions of them; point at a dot for its position."
    return Figure(tuple(_orbit(hand) for hand in ordered[::step]), caption=caption, columns=2, height=1.0)


def _orbit(hand: Hand) -> Panel:
    steps = min(len(hand.orbit_T2), 1 + math.ceil(2 * hand.period))
    places = range(0, steps, max(1, math.ceil(steps / MOST_DOTS)))
    orbit = hand.orbit_T2[list(places)]
    edge = 1.08 * float(orbit.abs().max())
    return Panel(
        (
            mark("line", orbit[:, 0], orbit[:, 1], emphasis="main"),
            mark("points", orbit[:, 0], orbit[:, 1], names=tuple(f"position {t}" for t in places)),
        ),
        title=f"{hand.period:,.1f} tokens per turn",
        xlim=(-edge, edge),
        ylim=(-edge, edge),
        equal=True,
    )
