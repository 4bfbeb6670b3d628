"""What was measured of larger grids, as findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from clockhands.comparison.statistics import Difference
from clockhands.extension.pictures.judge import JudgedGrid, JudgedGrids
from clockhands.extension.pictures.reading import Pictures
from clockhands.extension.pictures.tables import GRIDS
from clockhands.findings import Figure, Finding, Mark, Panel, Reference, Table

__all__ = ["describe_grid_choice", "make_grid_findings"]


def make_grid_findings(
    judged: JudgedGrids, pictures: Pictures, *, command: str, basis: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield how well the model names the pictures as it is, and what larger grids give and cost."""
    chance = math.log(judged.classes)
    better = judged.loss < chance
    verdict = (
        f"At its own {judged.side} pixels it names {judged.right:.0%} of {len(pictures)} pictures; the loss of the "
        f"right class is {judged.loss:.3f} nats, and guessing among {judged.classes:,} classes costs {chance:.3f}."
        + ("" if better else " So it does not know these pictures, and what follows says nothing of others.")
    )
    yield Finding(
        "extend.pictures", "How well does it know these pictures as it is?", verdict, judged.loss, "nats",
        references=(Reference("guessing", chance),), light="info" if better else "warn", command=command, basis=basis,
        details={"group": "As it is"},
    )  # fmt: skip
    yield _make_choice(judged, pictures, command, basis)


def describe_grid_choice(judged: JudgedGrids) -> str:
    """Say which grid was chosen, what it gains on larger pictures, and what it costs small ones."""
    chosen, longest = judged.chosen, judged.longest
    if chosen is None:
        barred = sum(not judged.passes(grid) for grid in judged.grids)
        return (
            f"Chosen: the model as it is, which reads larger pictures made smaller. {barred} of {len(judged.grids)} "
            f"larger grids are not shown to cost small pictures less than {judged.allowed:.3g} nats"
            + ("." if barred == len(judged.grids) else ", and the others are shown to read larger pictures worse.")
        )
    gain, cost = chosen.gain, chosen.cost
    shown = "less" if gain.high < 0 else "not shown to be less"
    return (
        f"Chosen: {chosen.way}, {GRIDS[chosen.way][0]}. At {longest} pixels the loss is {chosen.loss:.3f}, "
        f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] against the same pictures at {judged.side}, which is "
        f"{shown}. Small pictures blown up cost {cost.value:+.4f} nats [{cost.low:+.4f}, {cost.high:+.4f}]."
    )


def _make_choice(judged: JudgedGrids, pictures: Pictures, command: str, basis: Mapping[str, str]) -> Finding:
    longest = judged.longest
    columns = ["grid", f"loss at {longest} pixels", "named, %", f"against {judged.side} pixels", "against, low",
               "against, high", "cost on small pictures", "cost, low", "cost, high",
               "passes the guard"]  # fmt: skip
    smaller = pictures.count_smaller(longest)
    few = f" {smaller} of them have fewer than {longest} pixels and were blown up." if smaller else ""
    return Finding(
        "extend.grid",
        f"Which grid of positions reads pictures of {longest} pixels, and what does it cost small ones?",
        describe_grid_choice(judged),
        judged.loss if judged.chosen is None else judged.chosen.loss,
        "nats",
        references=(Reference(f"as it is, at {judged.side} pixels", judged.loss),),
        light="warn" if judged.chosen is None else "good",
        table=Table.of(columns, [_make_row(judged, grid) for grid in judged.grids]),
        figure=_draw(judged),
        method=(
            f"{len(pictures)} pictures, cut to their square middle.{few} The loss is that of the right class. Guard: "
            f"the cost on pictures of {judged.side} pixels, blown up, is shown to be below {judged.allowed:.3g} nats. "
            "Of the grids that pass and are not shown to be worse than the model as it is, the smallest loss. "
            "Differences, in nats, are paired by picture; intervals are simultaneous over grids (max-t), and the guard "
            "is judged by a one-sided bound, which is narrower."
        ),
        command=command,
        basis=basis,
        details={"group": "What makes it read larger pictures"},
    )


def _make_row(judged: JudgedGrids, grid: JudgedGrid) -> tuple[object, ...]:
    passes = "yes, chosen" if grid is judged.chosen else "yes" if judged.passes(grid) else "no"
    return (grid.way, grid.loss, 100 * grid.right, *_span(grid.gain), *_span(grid.cost), passes)


def _span(difference: Difference) -> tuple[float, float, float]:
    return difference.value, difference.low, difference.high


def _draw(judged: JudgedGrids) -> Figure:
    gains = _draw_bars("difference", [grid.gain for grid in judged.grids], judged)
    own = Mark("hline", "as it is", y=(0.0,), emphasis="reference")
    costs = _draw_bars("cost", [grid.cost for grid in judged.grids], judged)
    guard = Mark("hline", "guard", y=(judged.allowed,), emphasis="reference")
    panels = (
        Panel((gains, own), f"Loss at {judged.longest} pixels, less that of the model as it is", "", "nats"),
        Panel((costs, guard), "Cost on small pictures, blown up", "", "nats"),
    )
    caption = (
        f"Each larger grid beside the model as it is at {judged.side} pixels, with 95% intervals. An "
        "interval that crosses the dashed line of the upper panel leaves open which of the two has the smaller loss."
    )
    return Figure(panels, caption, height=0.42, title="What each grid gives")


def _draw_bars(label: str, differences: Sequence[Difference], judged: JudgedGrids) -> Mark:
    values, low, high = (tuple(_span(difference)[index] for difference in differences) for index in range(3))
    return Mark("bars", label, x=tuple(grid.way for grid in judged.grids), y=values, low=low, high=high)
