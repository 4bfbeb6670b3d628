"""Numbers of the measures that a comparison follows before, during and after training, by the name of the measure.

Each function takes a subject and windows of one length and returns named numbers; none where the measure does not
apply to the model, such as a measure of position vectors where none are added at the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from clockhands.inspection.measures.directions import Directions
from clockhands.inspection.measures.layer_probes import probe_layers
from clockhands.inspection.measures.loudness import Levels, measure_levels
from clockhands.inspection.measures.position_rows import read_rows
from clockhands.inspection.measures.recovery import Recovery
from clockhands.inspection.measures.table_similarity import TableSimilarity
from clockhands.inspection.measures.table_step import measure_random_split, project_rows
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.windows import Windows
from clockhands.inspection.subject.subject import Subject

CHEAP = ("loudness",)
"""Measures that cost next to nothing, so that they can be taken at every evaluation of a training run."""


def read_input_levels(subject: Subject, windows: Windows) -> Levels | None:
    """Return the mean squared lengths of token and position at the input; None without a position table there."""
    tables = subject.read_tables()
    return None if tables is None else measure_levels(tables, _unread(windows))


def _unread(windows: Windows) -> Capture:
    """Return a capture of token ids alone, for measures of the tables, which need no run of the model."""
    return Capture(windows.ids_NT, [], [], windows.ordinary_T)


def _loudness(subject: Subject, windows: Windows) -> dict[str, float]:
    found = read_input_levels(subject, windows)
    return {} if found is None else {"word over position": found.ratio, "position's share": found.share}


def _directions(subject: Subject, windows: Windows) -> dict[str, float]:
    found = Directions().run(Reading(subject, _unread(windows)))
    chance = found.reference("random rotations")
    if not isinstance(found.value, float) or chance is None:
        return {}
    return {"overlap": found.value, "overlap by chance": float(chance.value), "overlap z": float(found.details["z"])}


def _recovery(subject: Subject, windows: Windows) -> dict[str, float]:
    found = Recovery().run(Reading(subject, _unread(windows)))
    return {"words recovered": float(found.value)} if isinstance(found.value, float) else {}


def _louder(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return tokens recovered if positions were 4 and 16 times as long, beside random vectors of that length."""
    rows = Recovery().run(Reading(subject, _unread(windows))).table.rows
    found = {float(factor or 0): (float(mine or 0), float(chance or 0)) for factor, mine, chance in rows}
    return {
        f"words recovered, {what} {factor:g} times as long": found[factor][i]
        for factor in (4.0, 16.0)
        for i, what in enumerate(("positions", "random vectors"))
        if factor in found
    }


def _shift(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return numbers of the position table alone, which need no text."""
    rows = read_rows(subject)
    if isinstance(rows, str):
        return {}
    linear, rotation = measure_random_split(project_rows(rows.centred_ND), 1)
    similar = TableSimilarity().run(Reading(subject, _unread(windows))).value
    assert isinstance(similar, float)
    return {
        "error of a step as a linear map": linear,
        "error of a step as a rotation": rotation,
        "similarity told by distance": similar,
    }


def _survival(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return positions read back by layer; tokens are shuffled first, or some would give their place away."""
    generator = torch.Generator().manual_seed(0)
    places = windows.ordinary_T.nonzero().flatten()
    shuffled_NT = windows.ids_NT.clone()
    for text in shuffled_NT:
        text[places] = text[places[torch.randperm(len(places), generator=generator)]]
    recorded = capture(subject.model, subject.forward, shuffled_NT, ordinary_T=windows.ordinary_T)
    found = probe_layers(subject, recorded)
    chance = {"position read back by chance": 1 / int(recorded.counted_T.sum())}
    return {f"position read back, layer {i}": value for i, value in enumerate(found.position)} | chance


NUMBERS: Mapping[str, Callable[[Subject, Windows], dict[str, float]]] = {
    "loudness": _loudness,
    "directions": _directions,
    "recovery": _recovery,
    "louder": _louder,
    "shift": _shift,
    "survival": _survival,
}
"""By the name under which a comparison asks for them (``inside = [...]`` of a plan)."""
