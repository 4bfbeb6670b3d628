"""The colours, dashes and fonts of every figure, for light paper, and what colours become on a dark screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

INK, FAINT, GRID, GREY = "#24292f", "#57606a", "#d8dde3", "#6e7781"
"""The colours of text and axes, of labels, of the grid, and of references."""
PAPER = "#fdfdfb"
"""The colour of the page, for rims that part a mark from what lies below it."""
# Okabe & Ito (2008): told apart with every common kind of colour vision; their yellow is left out, and their orange and
# light blue are darker, for a contrast of 3 to 1 on paper.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#c08500", "#1d98dd")
# Steps of viridis, for more series than six: layers or heads, which have an order. The last are darker, as above.
RAMP = ("#482878", "#424086", "#38598c", "#2d708e", "#25858e", "#1e9b8a", "#27a275", "#37a450", "#5ca225", "#829a17")
DARK = {
    # What each colour becomes on a dark screen; the three of RAMP that are not here stay.
    INK: "#e6e9ed",
    FAINT: "#a9b2bd",
    GRID: "#343b44",
    GREY: "#8d97a3",
    PAPER: "#14171b",
    "#0072b2": "#4ea3e6",
    "#d55e00": "#f0824a",
    "#009e73": "#2fc79b",
    "#cc79a7": "#e39cc5",
    "#c08500": "#f2b632",
    "#1d98dd": "#a8dcfb",
    "#27a275": "#2ab07f",
    "#37a450": "#50c46a",
    "#5ca225": "#86d549",
    "#829a17": "#bddf26",
    "#482878": "#9d7fd1",
    "#424086": "#8e8bdb",
    "#38598c": "#7d9ddb",
}
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.6, 1.2, 1.6)))
GREY_DASHES = ((0, (4, 2.2)), (0, (1.2, 1.8)), (0, (7, 2, 1.2, 2)))
"""Symbols, dashes of series and dashes of references, in the order in which they are used."""
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"
"""Matplotlib's colour maps of heatmaps, and of those in which zero is in the middle."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

Dash: TypeAlias = str | tuple[int, tuple[int | float, ...]]
"""A line style of Matplotlib: its sign, or where it begins and the lengths of strokes and gaps, in line widths."""


@dataclass(frozen=True)
class Appearance:
    """Colour, symbol, dash and width, in points, of one mark."""

    colour: str
    marker: str = "o"
    dash: Dash = "-"
    width: float = 1.5


def make_settings(salt: str) -> dict[str, Any]:
    """Return Matplotlib's settings; ``salt`` makes the ids of one figure reproducible and different from another's."""
    return {
        "svg.fonttype": "none",
        # Matplotlib reads "none", the name of a scheme, as no salt at all and would draw one.
        "svg.hashsalt": f"{salt}-" if salt.lower() == "none" else salt,
        "text.parse_math": False,
        "font.family": ["DejaVu Sans"],
        "font.size": 11.5,
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": FAINT,
        "axes.linewidth": 0.8,
        "axes.titlesize": 11.5,
        "axes.titleweight": "bold",
        "axes.titlecolor": INK,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelsize": 10.5,
        "ytick.labelsize": 10.5,
        "legend.frameon": False,
        "legend.fontsize": 10.5,
        "legend.labelcolor": INK,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
    }


def make_dark_css(scope: str = "svg") -> str:
    """Return rules that exchange each light colour inside ``scope`` for its dark one."""
    rules = []
    for light, dark in DARK.items():
        rules += [f'{scope} [style*="{kind}: {light}"]{{{kind}:{dark}!important}}' for kind in ("fill", "stroke")]
    return "".join(rules)
