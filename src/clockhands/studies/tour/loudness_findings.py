"""How loud word and position are, before and after training, with and without the factor √d_model."""

from __future__ import annotations

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection import Subject
from clockhands.inspection.drawing import make_mark, make_reference_line
from clockhands.inspection.during_training import read_input_levels
from clockhands.inspection.measures.loudness import Levels, Loudness
from clockhands.inspection.reading.windows import select_one_length
from clockhands.studies.tour.training import MAIN, NO_SCALE, Translator, Translators
from clockhands.training.architecture import build

TEXTS = 400


def find_loudness(translators: Translators) -> Finding:
    """Return how loud word and position are in the two variants that differ in the factor, before and after."""
    rows = []
    for variant, label in ((MAIN, "with √d"), (NO_SCALE, "without √d")):
        translator = translators[variant]
        torch.manual_seed(translator.run.recipe.training.seed)
        start = build(translator.run.recipe, translator.run.tokenizers)
        rows.append((label, "before training", measure_levels(translator, start)))
        rows.append((label, "after training", measure_levels(translator, translator.run.model)))
    return _make_finding(rows)


def measure_levels(translator: Translator, model: torch.nn.Module) -> Levels:
    """Return the levels at the encoder's input over source texts of one length, the most frequent one."""
    rows = [translator.run.tokenizers.source(pair.source)["input_ids"] for pair in translator.pairs]
    levels = read_input_levels(Subject.of(model), select_one_length(rows, TEXTS))
    assert levels is not None, "the tour's model has an encoding at its input"
    return levels


def _make_finding(rows: list[tuple[str, str, Levels]]) -> Finding:
    ratio = {(label, when): levels.ratio for label, when, levels in rows}
    moments = ("before training", "after training")
    lines = tuple(
        make_mark("line", moments, [ratio[label, when] for when in moments], label=label)
        for label in dict.fromkeys(label for label, _, _ in rows)
    )
    return Finding(
        name="loudness.scale",
        question="Why multiply the embedding by √d_model?",
        verdict=(
            f"A word is {ratio['with √d', 'before training']:.2f} times as long as a position before training and "
            f"{ratio['with √d', 'after training']:.2f} times after; without the factor "
            f"{ratio['without √d', 'before training']:.2f} and {ratio['without √d', 'after training']:.2f}."
        ),
        value=ratio["with √d", "after training"],
        references=(Reference("without √d", ratio["without √d", "after training"]),),
        unit="word over position",
        table=Table.of(
            ("variant", "moment", "word over position", "position's share of the input"),
            [(label, when, levels.ratio, levels.share) for label, when, levels in rows],
        ),
        figure=Figure(
            (
                Panel(
                    (*lines, make_reference_line(1.0, "equally loud")),
                    ylabel="word over position, ratio of lengths",
                ),
            ),
            height=0.5,
            title="Length of a word over that of a position",
        ),
        method=Loudness.method,
        source="Vaswani et al. 2017, section 3.4",
        details={"group": "Word and position"},
    )
