"""How long word and position are, and how much they vary, before and after training, with the factor √d and without."""

from __future__ import annotations

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection import Subject, open_subject
from clockhands.inspection.drawing import make_mark, make_reference_line
from clockhands.inspection.during_training import read_input_levels
from clockhands.inspection.measures.loudness import Levels, Loudness
from clockhands.inspection.run import DEFAULT_COUNT
from clockhands.inspection.text_choice import choose_windows
from clockhands.studies.tour.training import MAIN, NO_SCALE, Translator, Translators
from clockhands.training.architecture import build


def find_loudness(translators: Translators) -> Finding:
    """Return how long word and position are in the two variants that differ in the factor, before and after."""
    rows = []
    for variant, label in ((MAIN, "with √d"), (NO_SCALE, "without √d")):
        translator = translators[variant]
        torch.manual_seed(translator.run.recipe.training.seed)
        start = build(translator.run.recipe, translator.run.tokenizers)
        rows.append((label, "before training", measure_run(translator, start)))
        rows.append((label, "after training", measure_run(translator, translator.run.model)))
    return _make_finding(rows)


def measure_run(translator: Translator, model: torch.nn.Module) -> Levels:
    """Return the levels at the encoder's input on the text on which ``clockhands inspect`` measures the run."""
    windows = choose_windows(open_subject(translator.run.path), None, None, DEFAULT_COUNT)
    levels = read_input_levels(Subject.of(model), windows)
    assert levels is not None, "the tour's model has an encoding at its input"
    return levels


def _make_finding(rows: list[tuple[str, str, Levels]]) -> Finding:
    levels = {(label, when): measured for label, when, measured in rows}
    moments, labels = ("before training", "after training"), tuple(dict.fromkeys(label for label, _, _ in rows))
    length = {key: measured.length for key, measured in levels.items()}
    variation = {key: measured.variation for key, measured in levels.items()}

    def write(values: dict[tuple[str, str], float]) -> list[str]:
        return [f"{values[label, when]:.2f}" for label in labels for when in moments]

    before, after, quiet_before, quiet_after = write(length)
    varied = write(variation)
    panels = tuple(
        Panel(
            (
                *(
                    make_mark("line", moments, [values[label, when] for when in moments], label=label)
                    for label in labels
                ),
                make_reference_line(1.0, "equal"),
            ),
            title=title,
            ylabel="word over position",
        )
        for title, values in (("Length", length), ("Variation", variation))
    )
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
            [(label, when, measured.length, measured.variation, measured.share) for label, when, measured in rows],
        ),
        figure=Figure(panels, columns=2, height=0.6, title="Words beside positions: how long, and how much they vary"),
        method=Loudness.method,
        source="Vaswani et al. 2017, section 3.4",
        details={"group": "Word and position"},
    )
