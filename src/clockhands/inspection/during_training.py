"""The numbers that a comparison follows before, during and after training, by their names in a plan.

Each function of ``MEASURE_FUNCTIONS`` takes a subject and windows of one length and returns named numbers. It returns
an empty dict where the measure does not apply to the model, as a measure of position vectors does not where none are
added at the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from clockhands.inspection.estimators.matrix_statistics import compute_toeplitz_r2
from clockhands.inspection.estimators.step_errors import measure_random_split, project_rows
from clockhands.inspection.measures.directions import Directions
from clockhands.inspection.measures.layer_probes import probe_layers
from clockhands.inspection.measures.loudness import Levels, measure_levels
from clockhands.inspection.measures.position_rows import read_rows
from clockhands.inspection.measures.recovery import Recovery, draw_sample
from clockhands.inspection.measures.table_similarity import compute_cosines
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.windows import Windows
from clockhands.inspection.subject.subject import Subject

CHEAP_MEASURES = ("loudness",)
"""Measures that cost next to nothing, so that they can be taken at every evaluation of a training run."""


def read_input_levels(subject: Subject, windows: Windows) -> Levels | None:
    """Return the mean squared lengths of token and position at the input; None without a position table there."""
    tables = subject.read_tables(windows.ids_NT.shape[1])
    return None if tables is None else measure_levels(tables, _capture_ids(windows))


def _capture_ids(windows: Windows) -> Capture:
    """Return a capture of the token ids alone, for measures of the tables, which need no run of the model."""
    return Capture(windows.ids_NT, [], [], windows.ordinary_T)


def _measure_loudness(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return token length over position length at the input, and position's share of the squared length."""
    levels = read_input_levels(subject, windows)
    return {} if levels is None else {"word over position": levels.ratio, "position's share": levels.share}


def _measure_directions(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return how far the directions of tokens and positions overlap."""
    finding = Directions().run(Reading(subject, _capture_ids(windows)))
    chance = finding.reference("random rotations")
    if not isinstance(finding.value, float) or chance is None:
        return {}
    return {
        "overlap": finding.value,
        "overlap by chance": float(chance.value),
        "overlap z": float(finding.details["z"]),
    }


def _measure_recovery(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return the share of tokens that are recovered from the sum with their position."""
    finding = Recovery().run(Reading(subject, _capture_ids(windows)))
    return {"words recovered": float(finding.value)} if isinstance(finding.value, float) else {}


def _measure_louder_positions(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return the share of tokens recovered with position vectors 4 and 16 times as long, and with random vectors."""
    sample = draw_sample(subject, _capture_ids(windows))
    if isinstance(sample, str):
        return {}
    return {
        f"words recovered, {name} {factor:g} times as long": float(sample.find_hits(factor * vectors).mean())
        for factor in (4.0, 16.0)
        for name, vectors in (("positions", sample.position), ("random vectors", sample.noise))
    }


def _measure_steps(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return the errors with which one map predicts every next row, and what distance explains of row similarities."""
    rows = read_rows(subject)
    if isinstance(rows, str):
        return {}
    linear, rotation = measure_random_split(project_rows(rows.centred_ND), 1)
    similarity = compute_toeplitz_r2(compute_cosines(rows.centred_ND))
    return {
        "error of a step as a linear map": linear,
        "error of a step as a rotation": rotation,
        "similarity told by distance": similarity,
    }


def _measure_survival(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return the share of positions that can be read back, by layer.

    Tokens are shuffled within their text first, for some of them would give their usual position away.
    """
    generator = torch.Generator().manual_seed(0)
    positions = windows.ordinary_T.nonzero().flatten()
    shuffled_NT = windows.ids_NT.clone()
    for text in shuffled_NT:
        text[positions] = text[positions[torch.randperm(len(positions), generator=generator)]]
    recorded = capture(subject.model, subject.forward, shuffled_NT, ordinary_T=windows.ordinary_T)
    probes = probe_layers(subject, recorded)
    chance = {"position read back by chance": 1 / int(recorded.measured_T.sum())}
    return {f"position read back, layer {i}": value for i, value in enumerate(probes.position_shares)} | chance


MEASURE_FUNCTIONS: Mapping[str, Callable[[Subject, Windows], dict[str, float]]] = {
    "loudness": _measure_loudness,
    "directions": _measure_directions,
    "recovery": _measure_recovery,
    "louder": _measure_louder_positions,
    "shift": _measure_steps,
    "survival": _measure_survival,
}
"""The function behind each name that ``inside = [...]`` may hold in the plan of a comparison.

Most are names of measures of ``inspect``. "louder" is ``recovery`` with louder positions. "shift" belongs to
``table.shift`` and ``table.similarity``: it is a step along the table, judged on random rows, and not the
interventions that shift all positions. Saved comparisons keep these names."""
