"""Draw the mechanism behind each answer of docs/answers.md: what is computed, never a score.

    python docs/studies/mechanisms.py            # writes docs/studies/figures/mechanism-*.svg

Every picture is a function of its own, named as the question is.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from clockhands.files import write_text
from clockhands.studies.exact.added import share_scores

FOLDER = Path(__file__).parent / "figures"
BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9822b", "#4f9d69", "#8a8a8a"
PICTURES: dict[str, Callable[[], Figure]] = {}


def picture(name: str) -> Callable[[Callable[[], Figure]], Callable[[], Figure]]:
    """Register the picture of a question."""

    def register(draw: Callable[[], Figure]) -> Callable[[], Figure]:
        PICTURES[name] = draw
        return draw

    return register


def start(columns: int = 1, width: float = 7.2, height: float = 2.8, **options: object) -> tuple[Figure, list]:
    """Return a figure with a row of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, columns, **options)))


@picture("scale")
def draw_scale() -> Figure:
    """What a score consists of, as stacked bars."""
    figure, (axes,) = start(height=2.4)
    cases = [("with √d, width 64", 2**0.5), ("with √d, width 512", 2**0.5),
             ("without, width 64", (2 / 64) ** 0.5), ("without, width 512", (2 / 512) ** 0.5)]  # fmt: skip
    left = np.zeros(len(cases))
    shares = np.array([share_scores(ratio) for _, ratio in cases]).T * 100
    for values, colour, name in zip(
        shares, (BLUE, GREY, ORANGE), ("word–word", "mixed", "position–position"), strict=True
    ):
        axes.barh([name for name, _ in cases], values, left=left, color=colour, label=name)
        left += values
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="share of the variance of a score, %")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


@picture("order-at-all")
def draw_order() -> Figure:
    """Cosines between the states of two sentences of the same words."""
    from clockhands.studies.exact.order import make_encoder, read

    figure, panels = start(3, height=2.9)
    words, others = ["a", "dog", "bit", "Tom"], ["Tom", "bit", "a", "dog"]
    ids, order = torch.tensor([4, 5, 6, 7]), torch.tensor([3, 2, 0, 1])
    cases = (
        ("no positions", "none", False),
        ("no positions, causal mask", "none", True),
        ("sinusoid", "sinusoidal", False),
    )
    for axes, (title, scheme, causal) in zip(panels, cases, strict=True):
        model = make_encoder(scheme, causal=causal)
        first, second = (torch.nn.functional.normalize(read(model, row), dim=-1) for row in (ids, ids[order]))
        cosines = (first @ second.T).numpy()
        axes.imshow(cosines, cmap="Blues", vmin=0, vmax=1)
        for (row, column), value in np.ndenumerate(cosines):
            axes.text(
                column,
                row,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=8,
                color="white" if value > 0.6 else "black",
            )
        axes.set_xticks(range(4), others)
        axes.set_yticks(range(4), words)
        axes.set_title(title, fontsize=10)
    return figure


@picture("why-sine-and-cosine")
def draw_hand() -> Figure:
    """A hand on its circle, and a sine with two places of the same height."""
    figure, (circle, wave) = start(2, height=2.9, width_ratios=(1, 1.7))
    angles = np.linspace(0, 2 * np.pi, 200)
    circle.plot(np.cos(angles), np.sin(angles), color=GREY, lw=1)
    for angle, name, colour in ((0.5, "t", BLUE), (1.5, "t + k", ORANGE)):
        circle.annotate(
            "", (np.cos(angle), np.sin(angle)), (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "lw": 2}
        )
        circle.text(1.12 * np.cos(angle), 1.12 * np.sin(angle), name, color=colour)
    arc = np.linspace(0.5, 1.5, 30)
    circle.plot(0.4 * np.cos(arc), 0.4 * np.sin(arc), color=GREEN)
    circle.text(0.3, 0.44, "ωk", color=GREEN)
    circle.set(aspect="equal", xlabel="cos ωt", ylabel="sin ωt", xlim=(-1.2, 1.5), ylim=(-1.2, 1.3))
    time = np.linspace(0, 2 * np.pi, 200)
    wave.plot(time, np.sin(time), color=GREY, lw=1)
    for place, colour in ((0.6, BLUE), (np.pi - 0.6, ORANGE)):
        wave.plot([place, place + 0.7], np.sin([place, place + 0.7]), "o-", color=colour)
        wave.annotate(
            "",
            (place + 0.7, np.sin(place + 0.7)),
            (place, np.sin(place)),
            arrowprops={"arrowstyle": "->", "color": colour},
        )
    wave.axhline(np.sin(0.6), color=GREY, ls=":", lw=1)
    wave.set(xlabel="ωt", ylabel="sin ωt")
    return figure


def as_svg(figure: Figure) -> str:
    """Return a figure as SVG that is the same every time."""
    with matplotlib.rc_context({"svg.hashsalt": "clockhands", "svg.fonttype": "none", "font.family": "sans-serif"}):
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"


def draw_mechanisms() -> None:
    """Write every picture."""
    for name, draw in PICTURES.items():
        write_text(FOLDER / f"mechanism-{name}.svg", as_svg(draw()))


if __name__ == "__main__":
    draw_mechanisms()
