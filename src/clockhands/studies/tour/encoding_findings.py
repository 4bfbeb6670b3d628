"""The encoding itself, its hands and its exact rotation, and how long it is beside the words, with √d and without."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from clockhands.findings import (
    Figure,
    Finding,
    Panel,
    Reference,
    Table,
    draw_columns,
    draw_heatmap,
    join_words,
    make_mark,
    put_together,
)
from clockhands.inspection import Subject, open_subject
from clockhands.inspection.during_training import read_input_levels
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.loudness import Levels, Loudness
from clockhands.inspection.number_format import format_ratio
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.windows import choose_windows
from clockhands.inspection.run import DEFAULT_COUNT
from clockhands.positions import count_up
from clockhands.runs import Run
from clockhands.schemes import Sinusoidal
from clockhands.shapes import Float, Tensor
from clockhands.studies.tour.training import MAIN, NO_SCALE, Translators
from clockhands.training.model import build

GROUP = "The encoding"
EXACT = 1e-5
"""Errors and differences below this are rounding of float32."""


def find_encoding(run: Run) -> Iterator[Finding]:
    """Yield all findings about the encoding of a run with sinusoids."""
    subject = Subject.of(run.model)
    tables = subject.read_tables()
    assert tables is not None, "the tour's model has an encoding at its input"
    rows_ND, reading = tables.positions_ND, Reading.without_text(subject)
    findings = (
        draw_classic(rows_ND),
        MEASURES["table.hands"].run(reading),
        _draw_circle(tables.tokens_VD, rows_ND, run),
        find_wavelengths(rows_ND.shape[1]),
        MEASURES["table.similarity"].run(reading),
        find_rotation(rows_ND),
    )
    for finding in findings:
        yield replace(finding, details={**finding.details, "group": GROUP})


def draw_classic(rows_ND: Float[Tensor, "N D"]) -> Finding:
    """Return the heatmap of 16 positions by 32 dimensions that explanations show, and the model's own encoding."""
    lengths, largest = rows_ND.norm(dim=-1), float(rows_ND.abs().max())
    low, high, paper = float(lengths.min()), float(lengths.max()), math.sqrt(rows_ND.shape[1] / 2)
    if high - low <= EXACT * high:
        name = "√(d/2) = " if abs(high - paper) <= EXACT * paper else ""
        length = f"all {len(rows_ND)} rows have the same length, {name}{high:.3f}"
    else:
        length = f"the {len(rows_ND)} rows have lengths from {low:.3f} to {high:.3f}"
    within = "no value leaves" if largest <= 1 + EXACT else "values leave"
    shown = {
        "16 positions, d = 32": Sinusoidal(32).encode(count_up(1, 16))[0],
        "this model: 64 positions": rows_ND[:64],
    }
    panels = [
        draw_heatmap(values, panel=panel, xlabel="dimension", ylabel="position", diverging=True)
        for panel, values in shown.items()
    ]
    return Finding(
        name="encoding.heatmap",
        question="What does the encoding look like?",
        verdict=f"Every row is one position; {length}, and {within} [-1, 1] (largest {largest:.3f}).",
        figure=put_together(panels, columns=2, height=0.8, title="The encoding, value by value"),
        method="PE(p, 2c) = sin(p / 10000^(2c/d)), PE(p, 2c+1) = cos(p / 10000^(2c/d)), drawn as it is.",
        source="Vaswani et al. 2017, section 3.5",
    )


def _draw_circle(tokens_VD: Float[Tensor, "V D"], rows_ND: Float[Tensor, "N D"], run: Run) -> Finding:
    """Return the first two dimensions of one word, at its first positions: a circle around the word."""
    tokenizer = run.tokenizers.source
    pieces = tokenizer("zwei", add_special_tokens=False)["input_ids"]
    token = max(pieces, key=lambda piece: len(tokenizer.decode(piece)))
    word = tokens_VD[token]
    sums = word[:2] + rows_ND[:7, :2]
    radius = (sums - word[:2]).norm(dim=-1)
    moved = float(rows_ND[1].norm() / word.norm())
    marks = (
        make_mark("line", sums[:, 0], sums[:, 1], label="with its position"),
        make_mark("points", sums[:, 0], sums[:, 1], names=tuple(f"position {t}" for t in range(len(sums)))),
        make_mark("points", word[:1], word[1:2], label=repr(tokenizer.decode([token])), emphasis="main"),
    )
    panel = Panel(marks, xlabel="dimension 0", ylabel="dimension 1", equal=True)
    return Finding(
        name="encoding.circle",
        question="Where does a word go when its position is added?",
        verdict=(
            f"In its first two dimensions the word moves on a circle of radius {float(radius.mean()):.3f} around "
            f"itself, once in {2 * math.pi:.2f} positions; over all dimensions the step away is "
            f"{format_ratio(moved)} times as long as the word."
        ),
        value=moved,
        unit="lengths of the word",
        figure=Figure((panel,), height=0.8, title="One word at its first seven positions"),
        method="The trained vector of a word, times √d_model, plus PE(t) for t = 0 to 6; dimensions 0 and 1.",
        source="Vaswani et al. 2017, sections 3.4 and 3.5",
    )


def find_wavelengths(width: int) -> Finding:
    """Return the positions in one turn of each hand."""
    period_F = 2 * math.pi / Sinusoidal(width).frequencies()
    index_F = torch.arange(len(period_F))
    within = int((period_F <= 64).sum())
    return Finding(
        name="encoding.wavelengths",
        question="How fast do the hands turn?",
        verdict=(
            f"The {len(period_F)} hands need {float(period_F[0]):.1f} to {float(period_F[-1]):,.0f} positions for one "
            f"turn, each {float(period_F[1] / period_F[0]):.2f} times as many as the one before; {within} of them turn "
            f"at least once within 64 tokens."
        ),
        value=float(period_F[-1]),
        unit="positions in the slowest turn",
        table=Table.of(("hand", "positions in one turn"), list(zip(index_F, period_F, strict=True))),
        figure=draw_columns(
            "points", index_F, {"": period_F}, title="Positions in one turn of every hand",
            xlabel="hand (pair of dimensions)", ylabel="positions in one turn", yscale="log",
        ),
        method="2π·10000^(2c/d) for c = 0 to d/2 - 1.",
        source="Vaswani et al. 2017, section 3.5",
    )  # fmt: skip


def find_rotation(rows_ND: Float[Tensor, "N D"], steps: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)) -> Finding:
    """Return how exactly PE(t + k) = R(k) PE(t) holds in the model's table, R(k) made of the frequencies alone."""
    omega_F = Sinusoidal(rows_ND.shape[1]).frequencies().double()
    errors = []
    for step in steps:
        cos_F, sin_F = (step * omega_F).cos(), (step * omega_F).sin()
        sin_NF, cos_NF = rows_ND[:-step].double().unflatten(-1, (-1, 2)).unbind(-1)
        rotated = torch.stack((sin_NF * cos_F + cos_NF * sin_F, cos_NF * cos_F - sin_NF * sin_F), dim=-1)
        errors.append(float((rotated.flatten(-2) - rows_ND[step:].double()).abs().max()))
    worst = max(errors)
    return Finding(
        name="encoding.rotation",
        question="What is the step from position t to t + k?",
        verdict=(
            f"{'One rotation' if worst < EXACT else 'No one rotation'} R(k) for all t, each hand rotated by k times "
            f"its own speed: the largest error over all t and k = {join_words(map(str, steps))} is "
            f"{1e8 * worst:,.2f} × 10⁻⁸."
        ),
        value=worst,
        light="good" if worst < EXACT else "bad",
        table=Table.of(("k", "largest error of R(k) PE(t)"), list(zip(steps, errors, strict=True))),
        method=(
            "sin((t+k)ω) = sin(tω)cos(kω) + cos(tω)sin(kω), and likewise for the cosine: a 2 × 2 rotation for each "
            "hand, computed from ω in float64 and compared with the rows that the model adds, in float32."
        ),
        source="Vaswani et al. 2017, section 3.5: PE(pos+k) is a linear function of PE(pos)",
    )


def find_loudness(translators: Translators) -> Finding:
    """Return how long word and position are in the two variants that differ in the factor, before and after."""
    measured: dict[tuple[str, str], Levels] = {}
    for variant, label in ((MAIN, "with √d"), (NO_SCALE, "without √d")):
        run = translators[variant].run
        torch.manual_seed(run.recipe.training.seed)
        start = build(run.recipe, run.tokenizers)
        # The text on which `clockhands inspect` measures the run.
        windows = choose_windows(open_subject(run.path), None, None, DEFAULT_COUNT)
        for when, model in (("before training", start), ("after training", run.model)):
            levels = read_input_levels(Subject.of(model), windows)
            assert levels is not None, "the tour's model has an encoding at its input"
            measured[label, when] = levels
    moments, labels = ("before training", "after training"), ("with √d", "without √d")
    length = {key: levels.length for key, levels in measured.items()}
    variation = {key: levels.variation for key, levels in measured.items()}
    before, after, quiet_before, quiet_after = [format_ratio(length[key]) for key in measured]
    varied = [format_ratio(variation[key]) for key in measured]
    panels = [
        draw_columns(
            "line", moments, {label: [values[label, when] for when in moments] for label in labels},
            levels={"equal": 1.0}, panel=panel, ylabel="word over position",
        )
        for panel, values in (("Length", length), ("Variation", variation))
    ]  # fmt: skip
    return Finding(
        name="loudness.scale",
        question="Why multiply the embedding by √d_model?",
        verdict=(
            f"With the factor a word is {before} times as long as a position before training and {after} times after; "
            f"without it {quiet_before} and {quiet_after} times. Length is not variation: with the factor words vary "
            f"{varied[0]} and {varied[1]} times as much as positions, without it {varied[2]} and {varied[3]} times."
        ),
        value=length["with √d", "after training"],
        references=(Reference("without √d", length["without √d", "after training"]),),
        unit="length of a word over that of a position",
        table=Table.of(
            ("variant", "moment", "length, word over position", "variation, word over position", "position's share"),
            [(*key, levels.length, levels.variation, levels.share) for key, levels in measured.items()],
        ),
        figure=put_together(
            panels, columns=2, height=0.6, title="Words beside positions: how long, and how much they vary"
        ),
        method=Loudness.method,
        source="Vaswani et al. 2017, section 3.4",
        details={"group": "Word and position"},
    )
