"""Draw the picture of each answer in docs/answers: its message, and what is computed or was measured.

    python docs/tools/answers/mechanisms.py            # writes docs/studies/figures/mechanism-*.svg

Every picture is a function of its own, named as the question is.
"""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
import torch
from exact.added import make_rows
from exact.crowd import WIDTHS
from kept import STUDY_PAGES, read_kept
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from clockhands.explanation.rotation import Rotation
from clockhands.files import write_text
from clockhands.studies.answer import list_values

FOLDER = STUDY_PAGES / "figures"
BLUE, ORANGE, GREEN, GREY, LIGHT = "#3b6fb6", "#d9822b", "#4f9d69", "#8a8a8a", "#c9ced6"
EXACT = json.loads((STUDY_PAGES / "exact.json").read_text("utf8"))
INSPECTED = json.loads((STUDY_PAGES / "minilm.json").read_text("utf8"))
LONGER = json.loads((STUDY_PAGES / "extending.json").read_text("utf8"))
TRAINED_PARTS = json.loads((STUDY_PAGES / "parts.json").read_text("utf8"))
LETTERS = {"font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5}
"""In points, which a phone shows as at least ten pixels."""
PICTURES: dict[str, Callable[[], Figure]] = {}


def picture(name: str, message: str) -> Callable[[Callable[[], Figure]], Callable[[], Figure]]:
    """Register the picture of a question, with the one thing that it shows above it."""

    def register(draw: Callable[[], Figure]) -> Callable[[], Figure]:
        def draw_titled() -> Figure:
            with matplotlib.rc_context(LETTERS):
                figure = draw()
            figure.suptitle(textwrap.fill(message, 38), fontweight="bold")
            return figure

        PICTURES[name] = draw_titled
        return draw

    return register


def start(columns: int = 1, height: float = 2.6, **options: object) -> tuple[Figure, list]:
    """Return a figure with a row of axes, no wider than what a phone shows without making its letters small."""
    figure = Figure(figsize=(4.2, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, columns, **options)))


def write_out(value: float, _place: int | None = None) -> str:
    """Return the label of a tick of a logarithmic axis: powers of ten as exponents are too small on a phone."""
    return f"{value:,.6g}" if value < 1 else f"{value:,.0f}"


@picture("scale", "Without √d the word is tiny beside its position")
def draw_scale() -> Figure:
    """The lengths of a word and a position at width 512, without the factor and with it."""
    figure, panels = start(2, height=1.8, sharex=True)
    position = float(make_rows(512, 2)[1].norm())
    for axes, word, title in zip(panels, (1.0, 512**0.5), ("without √d", "with √d"), strict=True):
        for height, length, name, colour in ((1, word, "word", BLUE), (0, position, "position", ORANGE)):
            axes.barh(height, length, 0.35, color=colour)
            axes.text(0, height + 0.28, f"{name}, {length:.3g}", color=colour)
        axes.set(title=title, xlim=(0, 24), ylim=(-0.3, 1.7))
        axes.axis("off")
    return figure


@picture("order-at-all", "Without positions and mask each word has its exact twin")
def draw_order() -> Figure:
    """Cosines between the states of two sentences of the same words."""
    from exact.order import make_encoder, read

    figure, panels = start(3, height=2.1)
    words, others = ["a", "dog", "bit", "Tom"], ["Tom", "bit", "a", "dog"]
    ids, order = torch.tensor([4, 5, 6, 7]), torch.tensor([3, 2, 0, 1])
    cases = (
        ("neither", "none", False),
        ("causal mask", "none", True),
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
                "1" if value > 0.995 else f"{value:.2f}".lstrip("0"),
                ha="center",
                va="center",
                color="white" if value > 0.6 else "black",
            )
        axes.set_xticks(range(4), others, rotation=90)
        axes.set_yticks(range(4), words)
        axes.set_title(title)
    return figure


@picture("why-sine-and-cosine", "With both, a step is a turn; by one sine two places look alike")
def draw_hand() -> Figure:
    """A hand on its circle, and a sine with two places of the same height."""
    figure, (circle, wave) = start(2, height=2.9, width_ratios=(1, 1.4))
    angles = np.linspace(0, 2 * np.pi, 200)
    circle.plot(np.sin(angles), np.cos(angles), color=GREY, lw=1)
    for angle, name, colour, place in ((0.5, "t", BLUE, (0.55, 0.95)), (1.5, "t + k", ORANGE, (0.1, -0.3))):
        circle.annotate(
            "", (np.sin(angle), np.cos(angle)), (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "lw": 2}
        )
        circle.text(*place, name, color=colour)
    arc = np.linspace(0.5, 1.5, 30)
    circle.plot(0.4 * np.sin(arc), 0.4 * np.cos(arc), color=GREEN)
    circle.text(0.36, 0.26, "ωk", color=GREEN)
    circle.set(aspect="equal", xlabel="sin ωt", ylabel="cos ωt", xlim=(-1.15, 1.15), ylim=(-1.15, 1.25))
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


def draw_block(axes: Axes, left: float, bottom: float, width: float, text: str, colour: str) -> None:
    """Draw a labelled box of height 1."""
    axes.add_patch(Rectangle((left, bottom), width, 1, facecolor=colour, edgecolor="white", lw=2))
    axes.text(
        left + width / 2,
        bottom + 0.5,
        text,
        ha="center",
        va="center",
        color="black" if colour == LIGHT else "white",
        fontsize=9,
    )


def make_blank(axes: Axes, right: float, top: float) -> None:
    """Leave out everything but what is drawn."""
    axes.set(xlim=(0, right), ylim=(0, top))
    axes.axis("off")


@picture("sum-or-concatenate", "Side by side is a sum, with zeros where the other stands")
def draw_concatenation() -> Figure:
    """A concatenation as a sum."""
    figure, (axes,) = start(height=2.0)
    draw_block(axes, 0, 2.2, 5, "word", BLUE)
    draw_block(axes, 5, 2.2, 3, "position", ORANGE)
    axes.text(9, 1.7, "=", fontsize=20, ha="center", va="center")
    for bottom, parts in (
        (2.2, (("word", 5, BLUE), ("0", 3, LIGHT))),
        (0.2, (("0", 5, LIGHT), ("position", 3, ORANGE))),
    ):
        left = 10.0
        for text, width, colour in parts:
            draw_block(axes, left, bottom, width, text, colour)
            left += width
    axes.text(14, 1.7, "+", fontsize=18, ha="center", va="center")
    make_blank(axes, 18.2, 3.4)
    return figure


@picture("does-adding-destroy-the-word", "The wider the model, the louder positions may be")
def draw_kept() -> Figure:
    """How many words stay nearest to themselves under their positions, by width and loudness."""
    figure, (axes,) = start(height=3.0)
    for times, colour in ((1, BLUE), (2, GREEN), (4, ORANGE), (16, GREY)):
        kept = [EXACT["crowd"][f"kept {width}, {times} times"] for width in WIDTHS]
        axes.semilogx(WIDTHS, kept, "o-", color=colour, label=f"{times} times as loud" if times > 1 else "as usual")
    axes.set(xlabel="width", ylabel="words kept, %", ylim=(-3, 104))
    axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
    axes.minorticks_off()
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


@picture("telling-apart", "In the first layer places meet places; that fades")
def draw_terms() -> Figure:
    """The terms of the scores of a trained encoder by layer."""
    figure, (axes,) = start(height=2.6)
    layers = np.arange(1, 7)
    bottom = np.zeros(6)
    terms = (("position–position", ORANGE), ("content–position", GREEN), ("content–content", BLUE))
    for (term, colour), name in zip(terms, ("position–position", "mixed", "word–word"), strict=True):
        values = np.array([INSPECTED[f"{term}, layer {layer}"] for layer in layers])
        axes.bar(layers, values, bottom=bottom, color=colour, label=name)
        bottom += values
    axes.bar(layers, 100 - bottom, bottom=bottom, color=GREY, label="alike for every query")
    axes.set(xlabel="layer", ylabel="variance of scores, %", ylim=(0, 100))
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


@picture("four-parts", "Word–word is the same whoever bit; position–position is not")
def draw_parts() -> Figure:
    """By how much trained heads prefer Tom to the dog, part by part, in both sentences: the means of the page."""
    figure, (axes,) = start(height=2.9)
    parts = ("word–word", "word–position", "position–word", "position–position", "all four")
    for shift, sentence, colour, label in (
        (-0.2, "Tom bit", BLUE, "Tom bit a dog"),
        (0.2, "dog bit", ORANGE, "a dog bit Tom"),
    ):
        told = [TRAINED_PARTS["parts"][f"Tom over dog, {part}, {sentence}"] for part in parts]
        means = [float(text.partition(" ")[0].replace("−", "-")) for text in told]
        axes.bar(np.arange(5) + shift, means, 0.38, color=colour, label=label)
    axes.axhline(0, color="black", lw=0.8)
    axes.set(ylabel="score of Tom − score of dog")
    axes.set_xticks(range(5), [part.replace("–", "–\n") for part in parts])
    axes.legend(frameon=False)
    return figure


@picture("why-10000", "A larger base makes the slow hands slower, and no hand faster")
def draw_wavelengths() -> Figure:
    """The wavelength of each hand by base."""
    figure, (axes,) = start(height=3.2)
    hands = np.arange(256)
    for base, colour in ((10, GREEN), (100, GREY), (10_000, BLUE), (1_000_000, ORANGE)):
        axes.semilogy(hands, 2 * np.pi * base ** (2 * hands / 512), color=colour, label=f"base {base:,}")
    for length in (50, 512, 5000):
        axes.axhline(length, color="black", lw=0.7, ls=":")
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        axes.text(2 if length > 50 else 185, length * 1.25, f"{length} tokens", bbox=ground)
    axes.yaxis.set_major_formatter(FuncFormatter(write_out))
    axes.set(xlabel="hand of 256", ylabel="wavelength, tokens")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


@picture("why-not-the-index", "The index outgrows the word; divided by length it means another place")
def draw_index() -> Figure:
    """The index beside a word's length, and index over length in two texts."""
    figure, (growing, shared) = start(2)
    places = np.arange(0, 500)
    growing.plot(places, places, color=ORANGE)
    growing.text(70, 330, "index", color=ORANGE)
    growing.axhline(512**0.5, color=BLUE)
    growing.text(180, 45, "word, √512", color=BLUE)
    growing.set(xlabel="position", ylabel="length of the vector", ylim=(-20, 520))
    for row, length in enumerate((5, 9)):
        shared.plot(np.arange(length) / (length - 1), np.full(length, row), "o-", color=(BLUE, ORANGE)[row])
        for index in range(0, length, 1 + row):
            shared.text(index / (length - 1), row + 0.12, str(index), ha="center")
    shared.set(xlabel="index / (length − 1)", ylim=(-0.5, 1.6), yticks=(0, 1), yticklabels=("5\nwords", "9\nwords"))
    return figure


@picture("do-positions-survive", "With residual connections the place stays readable; without, it is gone")
def draw_survival() -> Figure:
    """How often the place is read back from the states of untrained models, by layer."""
    figure, (axes,) = start(height=2.6)
    measured = read_kept("do-positions-survive")
    variants = (("with residual connections", "pre-norm", BLUE), ("without", "pre-norm, no residuals", ORANGE))
    for name, variant, colour in variants:
        seeds = [list_values("before", f"position read back, layer {n}", measured, variant) for n in range(5)]
        axes.plot(range(5), 100 * np.mean(seeds, axis=1), "o-", color=colour, label=name)
    axes.set(xlabel="after layer (0: the input)", ylabel="place found, %", ylim=(0, 104), xticks=range(5))
    axes.legend(frameon=False)
    return figure


@picture("learned-or-fixed", "A sinusoid begins with neighbours alike, a table as noise")
def draw_tables() -> Figure:
    """Cosines between the rows of a sinusoid and of a fresh table."""
    figure, panels = start(2, height=2.9)
    fixed, fresh = make_rows(64, 24).numpy(), np.random.default_rng(0).normal(size=(24, 64))
    for axes, rows, title in zip(panels, (fixed, fresh), ("sinusoid", "learned table, step 0"), strict=True):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        axes.imshow(unit @ unit.T, cmap="Blues", vmin=0, vmax=1)
        axes.set(xlabel="place", title=title)
    return figure


@picture("the-schemes", "A table knows two places; a rotation and a bias know their distance")
def draw_dependence() -> Figure:
    """What a score depends on: two places, or their distance."""
    figure, panels = start(3, height=1.9)
    i, j = np.mgrid[0:24, 0:24]
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(24, 8))
    omega = 10_000.0 ** (-np.arange(0, 16, 2) / 16)
    scores = (
        ("table: e_i·e_j", rows @ rows.T),
        ("Σ cos ω(i − j)", np.cos((i - j)[..., None] * omega).sum(-1)),
        ("ALiBi: −s|i − j|", -np.abs(i - j)),
    )
    for axes, (title, values) in zip(panels, scores, strict=True):
        axes.imshow(values, cmap="Blues")
        axes.set_title(title)
        axes.set(xlabel="key j", ylabel="query i")
    return figure


@picture("how-far", "A slow hand points where it never pointed; a line only goes on")
def draw_angles() -> Figure:
    """The arc of a slow hand in training and beyond, and a line that goes on."""
    figure, (circle, line) = start(2, height=2.8, width_ratios=(1, 1.7))
    angle = np.linspace(0, 2 * np.pi, 200)
    circle.plot(np.sin(angle), np.cos(angle), color=LIGHT, lw=1)
    for begin, end, colour in ((0, 0.64, BLUE), (0.64, 2.56, ORANGE)):
        arc = np.linspace(begin, end, 80)
        circle.plot(np.sin(arc), np.cos(arc), color=colour, lw=4)
    circle.set(aspect="equal")
    circle.set_title("hand of 628 tokens")
    circle.axis("off")
    for begin, end, colour, name in ((0, 64, BLUE, "trained"), (64, 256, ORANGE, "beyond")):
        line.plot([begin, end], [-0.1 * begin, -0.1 * end], color=colour, lw=3, label=name)
    line.set(xlabel="distance", ylabel="ALiBi's bias")
    line.set_title("a line")
    line.legend(frameon=False)
    return figure


@picture("rope-values", "A score keeps the angle between two places; a value keeps its own")
def draw_meeting() -> Figure:
    """Two hands with an angle between them, before and after a shift; and a value with its own angle."""
    figure, panels = start(3, height=2.5)
    cases = (("a score at i, j", (0.4, 1.3)), ("the same, shifted", (1.6, 2.5)), ("a rotated value", (2.2,)))
    for axes, (title, places) in zip(panels, cases, strict=True):
        draw_circle(axes, places)
        axes.set_title(title)
    return figure


def draw_circle(axes: Axes, places: Sequence[float], colours: Sequence[str] = ("#3b6fb6", "#d9822b")) -> None:
    """Draw hands that turn clockwise on a circle, and the angle between two."""
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.sin(angle), np.cos(angle), color=LIGHT, lw=1)
    for place, colour in zip(places, colours, strict=False):
        arrow = {"arrowstyle": "->", "color": colour, "lw": 2}
        axes.annotate("", (np.sin(place), np.cos(place)), (0, 0), arrowprops=arrow)
    arc = np.linspace(places[0] if len(places) > 1 else 0, places[-1], 30)
    axes.plot(0.4 * np.sin(arc), 0.4 * np.cos(arc), color=GREEN, lw=2)
    axes.set(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
    axes.axis("off")


@picture("rope-layouts", "Two ways to pair the same channels")
def draw_layouts() -> Figure:
    """Pairs of channels in two layouts."""
    figure, (axes,) = start(height=1.9)
    colours = (BLUE, ORANGE, GREEN, GREY)
    for bottom, name, pairs in ((1.6, "interleaved", [0, 0, 1, 1, 2, 2, 3, 3]), (0.2, "halves", [0, 1, 2, 3] * 2)):
        axes.text(0, bottom + 0.5, name, va="center")
        for channel, pair in enumerate(pairs):
            draw_block(axes, 2.2 + channel, bottom, 1, str(channel), colours[pair])
    make_blank(axes, 10.4, 2.8)
    return figure


def draw_left(axes: Axes, base: float, rotated: int, colour: str, name: str) -> None:
    """Draw what is left of the score of a query with a key like it, by distance."""
    distance = np.unique(np.logspace(0, 4.2, 700).astype(int))
    theta = base ** (-np.arange(0, rotated, 2) / rotated)
    left = (np.cos(distance[:, None] * theta).sum(1) + (128 - rotated) / 2) / 64
    axes.semilogx(distance, left, color=colour, lw=1.2, label=name)
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="distance, tokens", ylabel="what is left of the score", ylim=(-0.4, 1.1))
    axes.xaxis.set_major_formatter(FuncFormatter(write_out))
    axes.legend(frameon=False, loc="lower left")


@picture("rope-base", "With a larger base a match outscores a stranger further away")
def draw_bases() -> Figure:
    """What is left of a score by distance for two bases."""
    figure, (axes,) = start()
    draw_left(axes, 10_000.0, 128, BLUE, "base 10,000")
    draw_left(axes, 500_000.0, 128, ORANGE, "base 500,000")
    return figure


@picture("rope-quarter", "Resting channels keep a match alive at any distance")
def draw_quarter() -> Figure:
    """What is left of a score by distance, with all or a quarter of the channels rotated."""
    figure, (axes,) = start()
    draw_left(axes, 10_000.0, 128, BLUE, "all channels rotate")
    draw_left(axes, 10_000.0, 32, ORANGE, "a quarter")
    return figure


@picture("rope-global", "Without rotation the score is the same at any distance")
def draw_global() -> Figure:
    """One score by distance, rotated and plain."""
    figure, (axes,) = start()
    draw_left(axes, 10_000.0, 128, BLUE, "rotated")
    axes.axhline(1, color=ORANGE, label="not rotated")
    axes.legend(frameon=False, loc="lower left")
    return figure


@picture("yarn", "YaRN keeps fast hands and slows the slow ones")
def draw_yarn() -> Figure:
    """The frequencies after YaRN over those before."""
    figure, (axes,) = start()
    plain = Rotation(128, 128, 10_000.0).frequencies()
    for factor, colour in ((4, BLUE), (32, ORANGE)):
        yarn = Rotation(128, 128, 10_000.0, rule="yarn", factor=float(factor), original_length=4096).frequencies()
        axes.semilogy([b / a for a, b in zip(plain, yarn, strict=True)], color=colour, label=f"factor {factor}")
    axes.yaxis.set_major_formatter(FuncFormatter(write_out))
    axes.set(xlabel="hand of 64, the fastest first", ylabel="frequency, after / before")
    axes.legend(frameon=False)
    return figure


@picture("how-long", "All claim 64 tokens; measured, few are shown to read them")
def draw_reach() -> Figure:
    """Of five rotary models and five with windows: how many are shown to read what they claim."""
    figure, (axes,) = start(height=2.2)
    reach = LONGER["longer-reach"]
    told = [[reach[f"{kind}, shown {how} it"] for kind in ("rope", "windows")] for how in ("to read", "not to read")]
    shown, not_shown = np.array([[5, *counts] for counts in told]) - [[0, 0, 0], [5, 0, 0]]
    for left, counts, colour, name in (
        (0, shown, BLUE, "shown to"),
        (shown, 5 - shown - not_shown, LIGHT, "open"),
        (5 - not_shown, not_shown, ORANGE, "shown not to"),
    ):
        axes.barh(range(3), counts, 0.6, left, color=colour, label=name)
    axes.set_yticks(range(3), ("claimed", "rotary, measured", "windows, measured"))
    axes.set(xlabel="trainings of five that read 64 tokens", ylim=(2.5, -0.5))
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


@picture("packing", "A shift changes no distance")
def draw_packing() -> Figure:
    """The mask of two packed documents."""
    figure, (axes,) = start(height=3.2)
    query, key = np.mgrid[0:12, 0:12]
    allowed = (key <= query) & ((query < 5) == (key < 5))
    axes.imshow(np.where(allowed, query - key, np.nan), cmap="Blues_r")
    axes.set(xlabel="key", ylabel="query", xticks=(2, 8), xticklabels=("first", "second"))
    axes.set_yticks((2, 8), ("first", "second"), rotation=90, va="center")
    axes.set_title("distance, where a token may look")
    return figure


@picture("left-padding", "Count from the first real token, and hide the padding")
def draw_padding() -> Figure:
    """A padded row with two ways to count."""
    figure, (axes,) = start(height=2.0)
    for place, text in enumerate(("", "", "Tom", "bit", "a", "dog")):
        draw_block(axes, 3 + place, 2.2, 1, text or "pad", BLUE if text else LIGHT)
        axes.text(3.5 + place, 1.5, str(place), ha="center", color=ORANGE)
        axes.text(3.5 + place, 0.6, str(place - 2) if text else "–", ha="center", color=GREEN)
    axes.text(0, 1.5, "from the edge", color=ORANGE)
    axes.text(0, 0.6, "over the mask", color=GREEN)
    make_blank(axes, 9.2, 3.4)
    return figure


@picture("cached-keys", "One more turn moves a key; another base fits no place")
def draw_cached() -> Figure:
    """A key, moved on by a rotation."""
    figure, panels = start(2, height=2.6)
    for axes, places, title in zip(
        panels, ((0.5, 1.2), (0.5, 0.2)), ("moved on by R(7)", "another base: no such place"), strict=True
    ):
        draw_circle(axes, places)
        axes.set_title(title)
    return figure


@picture("stretched-table", "However it is stretched, longer texts are read much worse at first")
def draw_stretched() -> Figure:
    """By how much the loss rose on texts four times as long, right after three ways to stretch a table."""
    figure, (axes,) = start(height=2.2)
    rows = (("interpolated", "rows between"), ("tiled", "the old rows again"), ("held", "the last row for all"))
    for place, (kind, _) in enumerate(rows):
        rise = LONGER["longer-table"][kind]
        axes.barh(place, rise, 0.6, color=BLUE)
        axes.text(rise + 0.05, place, f"+{rise:.2f}", va="center")
    axes.set_yticks(range(3), [name for _, name in rows])
    axes.set(xlabel="rise of a language model's loss, nats", ylim=(2.5, -0.5), xlim=(0, 2.9))
    return figure


@picture("temperature", "One strong key fades among many, unless scores grow with log n")
def draw_temperature() -> Figure:
    """The share of one key by the number of keys."""
    figure, (axes,) = start()
    count = np.logspace(3, 6, 100)
    for name, factor, colour in (
        ("plain", 1.0, BLUE),
        ("scores times log n / log 1000", np.log(count) / np.log(1000), ORANGE),
    ):
        axes.semilogx(count, 100 / (1 + (count - 1) * np.exp(-10 * factor)), color=colour, label=name)
    axes.xaxis.set_major_formatter(FuncFormatter(write_out))
    axes.set(xlabel="keys", ylabel="attention to one key, %", ylim=(0, 102))
    axes.legend(frameon=False)
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
