"""Shares are drawn in percent, as verdicts tell them; whatever else is drawn stays as it is."""

from __future__ import annotations

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures.percent import show_percent


def convert(mark: Mark, **panel: object) -> tuple[Panel, Mark]:
    shown = show_percent(Figure((Panel((mark,), **panel),))).panels[0]  # type: ignore[arg-type]
    return shown, shown.marks[0]


def test_an_axis_of_shares_is_in_percent_with_its_limits_and_intervals() -> None:
    bars = Mark("bars", x=("a", "b"), y=(0.25, 1), low=(0.2, 0.5), high=(0.5, 1))
    panel, mark = convert(bars, ylabel="share of variance", xlabel="layer", ylim=(0, 1.5))
    assert (panel.ylabel, panel.xlabel, panel.ylim) == ("% of variance", "layer", (0, 150))
    assert (mark.x, mark.y, mark.low, mark.high) == (("a", "b"), (25, 100), (20, 50), (50, 100))


def test_bars_that_lie_have_their_numbers_across() -> None:
    panel, mark = convert(Mark("bars", x=(0.5,), y=("a",), low=(0.25,), high=(0.75,)), xlabel="share right")
    assert (panel.xlabel, mark.x, mark.low, mark.high) == ("% right", (50,), (25,), (75,))


def test_a_colour_bar_of_shares_is_in_percent_and_holes_stay() -> None:
    _, mark = convert(Mark("heatmap", "share", x=(1, 2), z=((0.5, None),)))
    assert (mark.label, mark.x, mark.z) == ("%", (1, 2), ((50, None),))


def test_what_is_no_share_stays_as_it_is() -> None:
    mark = Mark("line", "share of a", x=(1, 2), y=(0.5, 0.7))
    assert convert(mark, ylabel="nats per token") == (Panel((mark,), ylabel="nats per token"), mark)
