"""Findings that use everything a report can show, made from closed formulas: the same on every machine."""

from __future__ import annotations

import math

from clockhands.findings import Figure, Finding, Findings, Mark, Panel, Reference, Table

EVIL = "<img src=x onerror=alert(1)>"
LAYERS = tuple(range(1, 13))
INPUT, ATTENTION = {"group": "The input"}, {"group": "Attention"}


def wave(seed: int) -> float:
    """A number in 0..1 that looks random and is not."""
    return (math.sin(seed * 12.9898) * 43758.5453) % 1.0


def loudness() -> Finding:
    parts, shares = ("words", "positions", "constant"), (0.612, 0.094, 0.294)
    norms = tuple(1.1 + 0.1 * math.sin(row / 9) + (2.4 if row == 0 else 0.0) for row in range(128))
    bars = Mark("bars", "share of the input", shares, parts, low=(0.59, 0.08, 0.28), high=(0.63, 0.11, 0.31))
    rows = Mark("line", "norm of the row", tuple(range(128)), norms, emphasis="main")
    words = Mark("hline", "words, on average", y=(2.9,), emphasis="reference")
    panels = (
        Panel((bars,), "Share of the squared norm", "share"),
        Panel((rows, words), "Norm by position", "position", "centred norm"),
    )
    return Finding(
        "loudness.share",
        "How loud is position next to the token?",
        "Positions make up 9.4 % of the input; an untrained table of this size would make up 1.3 %.",
        value=9.4,
        unit="%",
        interval=(8.1, 11.2),
        references=(Reference("untrained", 1.3, (1.2, 1.4)),),
        light="good",
        table=Table.of(("part", "share", "low", "high"), zip(parts, shares, bars.low, bars.high, strict=True)),
        figure=Figure(panels, "Bars with 95 % intervals over texts. Row 0 is an outlier.", columns=2, height=0.7),
        method="Norms are centred and weighted by how often each word occurs in the text:\n\n"
        "`share = E|p − p̄|² / (E|w − w̄|² + E|p − p̄|² + |w̄ + p̄|²)`\n\nIntervals are bootstrapped over 96 texts.",
        source="Wang & Chen 2020, arXiv:2010.04903, section 3; https://example.org/notes.html.",
        command="clockhands inspect demo --only loudness",
        details={**INPUT, "texts": 96, "bootstrap draws": 2000},
    )


def similarity() -> Finding:
    places = tuple(range(96))
    z = tuple(tuple(math.exp(-abs(i - j) / 18) - 0.35 * abs(math.sin((i - j) / 7)) for j in places) for i in places)
    heat = Mark("heatmap", "cosine", z=z, x=places, y=places, diverging=True)
    curve = Mark("line", "mean", places, z[0])
    fan = Mark("band", "mean", places, low=tuple(v - 0.1 for v in z[0]), high=tuple(v + 0.1 for v in z[0]))
    panels = (
        Panel((heat,), "Cosine of rows", "position", "position", equal=True),
        Panel((fan, curve), "By distance", "distance", "cosine"),
    )
    return Finding(
        "table.similarity",
        "Are neighbouring positions similar?",
        "68 % of the similarity depends on the distance alone, against 1 % for random rows.",
        value=0.68,
        interval=(0.66, 0.71),
        references=(Reference("rows shuffled", 0.01),),
        light="good",
        table=Table.of(("distance", "cosine"), list(enumerate(z[0]))),
        figure=Figure(panels, "Row i against row j.", columns=2, height=0.85),
        method="Toeplitz R² without the diagonal.",
        details=INPUT,
    )


def clock() -> Finding:
    angles = [k * 2 * math.pi / 16 for k in range(16)]
    circle = tuple(map(math.cos, angles)), tuple(map(math.sin, angles))
    orbit = Mark("points", "positions", *circle, names=tuple(f"position {k}" for k in range(16)))
    shifts, errors = tuple(2**k for k in range(7)), tuple(0.005 * 1.7**k for k in range(7))
    ends = {"low": tuple(v * 0.8 for v in errors), "high": tuple(v * 1.3 for v in errors)}
    marks = (
        Mark("line", "fitted rotation", shifts, errors, **ends, emphasis="main"),
        Mark("line", "any linear map", shifts, tuple(v * 0.7 for v in errors)),
        Mark("line", "chance", shifts, (0.98,) * 7, emphasis="reference"),
        Mark("vline", "trained length", x=(32,)),
    )
    error = Panel(marks, "Error of P(t) → P(t + k)", "shift k", "relative error", xscale="log", yscale="log")
    return Finding(
        "table.clock",
        "Does a shift turn the position vectors like a clock's hands?",
        "Three hands turn at constant speed, with periods of 5.6, 15.8 and 68 tokens; "
        "a shift by 1 is a rotation to 0.5 %.",
        value=4.2e-7,
        unit="rad²",
        references=(Reference("untrained", 0.98),),
        figure=Figure((Panel((orbit,), "Second pair of components", equal=True), error), columns=2, height=0.9),
        method="Procrustes in the top components, held out.",
        details=INPUT,
    )


def decomposition() -> Finding:
    parts = ("content–content", "content–position", "position–content", "position–position")
    raw = [[wave(7 * part + 3 * layer) + (4 / layer if part == 3 else 0.3) for layer in LAYERS] for part in range(4)]
    totals = [sum(column) for column in zip(*raw, strict=True)]
    marks = tuple(
        Mark("stack", name, LAYERS, tuple(value / total for value, total in zip(row, totals, strict=True)))
        for name, row in zip(parts, raw, strict=True)
    )
    panel = Panel(marks, "", "layer", "share of variance")
    return Finding(
        "logits.shares",
        "Does a layer attend by content or by position?",
        "Position alone decides 71 % of the logits' variance in layer 1 and 9 % in layer 12.",
        value=0.71,
        interval=(0.69, 0.73),
        table=Table.of(("layer", *parts), zip(LAYERS, *(mark.y for mark in marks), strict=True)),
        figure=Figure((panel,), "Shares of the unbiased variance.", height=0.45),
        details=ATTENTION,
    )


def heads() -> Finding:
    z = tuple(tuple(wave(layer * 31 + head) ** (1 + layer / 4) for head in range(12)) for layer in LAYERS)
    names = {"x": tuple(f"h{h}" for h in range(12)), "y": tuple(f"layer {layer}" for layer in LAYERS)}
    rows = [(layer, head, z[layer - 1][head]) for layer in LAYERS for head in range(12)]
    panel = Panel((Mark("heatmap", "share explained", z=z, **names),), "", "head")
    return Finding(
        "heads.positional",
        "Which heads are positional?",
        "9 of 144 heads follow the positions alone for at least 60 % of their attention.",
        value=9,
        unit="heads",
        references=(Reference("untrained", 0),),
        light="warn",
        table=Table.of(("layer", "head", "share"), rows),
        figure=Figure((panel,), "Share of attention variance explained by (i, j)."),
        details=ATTENTION,
    )


def distances() -> Finding:
    reach, panels, rows = tuple(range(-16, 17)), [], []
    uniform = Mark("line", "uniform", reach, (1 / 33,) * 33, emphasis="reference")
    for layer in range(1, 4):
        for head in range(4):
            centre, width = -2 + 4 * wave(layer + head), 0.6 + layer * wave(head + 1) * 2
            y = tuple(math.exp(-(((d - centre) / width) ** 2)) / width for d in reach)
            own = Mark("line", "this head", reach, y, emphasis="main")
            panels.append(Panel((own, uniform), f"L{layer} h{head}", "distance to the key", "attention"))
            rows += [(layer, head, d, value) for d, value in zip(reach, y, strict=True)]
    return Finding(
        "heads.distance",
        "How far do the heads attend?",
        "Layer 2 looks 7 tokens away in the median, against 34 for uniform attention.",
        value=7.0,
        unit="tokens",
        interval=(6.2, 8.0),
        references=(Reference("uniform attention", 34.0),),
        light="good",
        table=Table.of(("layer", "head", "distance", "attention"), rows),
        figure=Figure(tuple(panels), "One panel a head.", columns=12, height=0.5),
        details=ATTENTION,
    )


def survival() -> Finding:
    def fade(start: float, end: float) -> tuple[float, ...]:
        return tuple(start + (end - start) * (layer / 12) for layer in LAYERS)

    marks = (
        Mark("line", "position, exact", LAYERS, fade(0.75, 0.08), emphasis="main"),
        Mark("band", "position, exact", LAYERS, low=fade(0.71, 0.05), high=fade(0.79, 0.11)),
        Mark("line", "token", LAYERS, fade(0.99, 0.9)),
        Mark("line", "random initialisation", LAYERS, fade(1.0, 0.98), emphasis="reference"),
        Mark("hline", "permuted labels", y=(0.006,), emphasis="reference"),
    )
    return Finding(
        "survival.probe",
        "Do positions survive through the layers?",
        "75 % of positions can be read after layer 1 and 8 % after layer 12; permuted labels give 0.6 %.",
        value=0.08,
        interval=(0.05, 0.11),
        references=(Reference("chance", 0.006),),
        light="bad",
        figure=Figure((Panel(marks, "", "layer", "accuracy of a ridge probe", ylim=(0, 1.02)),), height=0.5),
        details={"group": "Further up"},
    )


def cause() -> Finding:
    words = ("as it is", "shift by 1", "shift by 64", "permuted words", f"with {EVIL}", "$x_1$ & “quotes”")
    ends = {"low": (1, 0.92, 0.85, 0.81, 0.77, 0.7), "high": (1, 0.95, 0.88, 0.86, 0.83, 0.74)}
    marks = (
        Mark("points", "this model", (1.0, 0.934, 0.862, 0.835, 0.8, 0.72), words, **ends, names=words),
        Mark("vline", "other sentences", x=(0.604,), emphasis="reference"),
    )
    return Finding(
        "cause.output",
        f"Does absolute place matter to the output? {EVIL}",
        f"One step already costs 0.07 of the cosine; the token {EVIL} costs 0.2.",
        value="one step: 0.07",
        light="warn",
        table=Table.of(("words", "cosine"), [(EVIL, 0.8), ("a\nb\x00c", None), ("日本語", float("nan"))]),
        figure=Figure((Panel(marks, EVIL, "cosine to the original output"),), EVIL, height=0.4),
        details={"group": "Cause"},
    )


def schemes() -> Finding:
    names = ("sinusoidal", "learned", "rope", "alibi", "t5", "nope")
    ends = {"low": (27, 26.7, 27.5, 26.9, 27.1, 24.1), "high": (27.8, 27.5, 28.4, 27.6, 28, 25.6)}
    marks = (
        Mark("bars", "trained length", names, (27.4, 27.1, 27.9, 27.2, 27.6, 25.0), **ends),
        Mark("bars", "twice the length", names, (19.4, 3.1, 20.9, 26.8, 24.6, 18.0)),
    )
    return Finding(
        "compare.bleu",
        "Which scheme translates best?",
        "No difference shown between rope, t5 and sinusoidal.",
        figure=Figure((Panel(marks, "", "", "BLEU"),), height=0.42),
        details={"group": "Cause"},
    )


SKIPPED = tuple(
    Finding(name, question, reason, light="skip")
    for name, question, reason in (
        (
            "rope.frequencies",
            "Which of RoPE's frequencies matter?",
            "This model adds learned positions; it rotates nothing.",
        ),
        (
            "concat.overlap",
            "Do tokens and positions share directions?",
            "Words and positions are concatenated, so they cannot.",
        ),
    )
)


def demo(title: str = "What position does inside demo-encoder") -> Findings:
    """Every kind of mark, every light, hostile text, many panels."""
    makers = (loudness, similarity, clock, decomposition, heads, distances, survival, cause, schemes)
    return Findings(
        title,
        (*(make() for make in makers), *SKIPPED),
        facts={
            "model": "demo-encoder, 12 layers, width 384, 12 heads",
            "mechanism": "learned position vectors are added to the word vectors before the first LayerNorm",
            "text": "96 texts of 128 tokens (built-in corpus)",
            "versions": "torch 2.11, transformers 5.17",
        },
        signature="demo|texts:96|len:128|seed:0|v:0.1",
        command="clockhands inspect demo --out report/",
    )


FIGURE = Figure((Panel((Mark("line", "a", (1, 2), (3.0, 4.0)),)),))
ONE = Finding("a.one", "One?", "One.", figure=FIGURE, table=Table.of(("k", "v"), [("x", 0.25)]), light="good")
TWO = Finding("two", "Two?", "[bold]Two[/bold] " + EVIL, light="bad")
SKIP = Finding("three", "Three?", "There is none.", light="skip")
RUN = Findings("A run", (ONE, TWO, SKIP), facts={"model": "m"})
"""A small run: a figure with its table, hostile text, and what was skipped."""
