"""The numbers that a comparison follows before, during and after training, by their names in a plan.

Each function of ``MEASURE_FUNCTIONS`` takes a subject and windows of one length and returns named numbers. It returns
an empty dict where the measure does not apply to the model, as a measure of position vectors does not where none are
added at the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from clockhands.inspection.estimators.matrix_statistics import (
    compute_participation,
    compute_random_participation,
    compute_toeplitz_r2,
)
from clockhands.inspection.measures.directions import Directions, measure_mixed_share
from clockhands.inspection.measures.logits import EXACT
from clockhands.inspection.measures.loudness import STILL, Levels, measure_channel_moves, measure_levels
from clockhands.inspection.measures.recovery import Recovery, draw_sample
from clockhands.inspection.measures.survival import probe_layers
from clockhands.inspection.measures.table_rows import compute_cosines, measure_random_split, read_rows
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.logit_split import TERMS, split_logits
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.windows import Windows
from clockhands.models.subject import Subject

CHEAP_MEASURES = ("loudness", "channels", "participation", "terms", "mixing")
"""Measures that cost little beside an evaluation, so that they can be taken at each of a training run."""
AT_ONCE = 48
"""Texts that are run at once: they are short, and many runs of few would take longer than an evaluation."""
FOUR_TERMS = {
    "content–content": "word–word",
    "content–position": "word–position",
    "position–content": "position–word",
    "position–position": "position–position",
}
"""The terms of (Q(x + e))ᵀ(K(y + f)), query first, by their names in the split of the logits."""
OF_EVERY_QUERY = {"constant–content": "every query–word", "constant–position": "every query–position"}
"""What a key gets from every query alike: the products of the mean state with it. Of a sinusoid whose slow hands have
not come round, the mean of the positions is most of that state, and these terms are most of a score."""


def read_input_levels(subject: Subject, windows: Windows) -> Levels | None:
    """Return how long token and position are at the input, and how much they vary; None without a position table."""
    tables = subject.read_tables(windows.ids_NT.shape[1])
    return None if tables is None else measure_levels(tables, _capture_ids(windows))


def _capture_ids(windows: Windows) -> Capture:
    """Return a capture of the token ids alone, for measures of the tables, which need no run of the model."""
    return Capture(windows.ids_NT, [], [], windows.ordinary_T)


def _measure_loudness(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return how much tokens vary over positions, position's share of what varies, and the mean lengths of the rows."""
    levels = read_input_levels(subject, windows)
    if levels is None:
        return {}
    return {
        "word over position": levels.variation,  # saved comparisons keep these names
        "position's share": levels.share,
        "length of a word's row": levels.token_length,
        "length of a position's row": levels.position_length,
    }


def _measure_channels(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return how far positions move the channels of a token, in standard deviations of tokens in that channel.

    Nothing where tokens and positions have channels of their own.
    """
    tables = subject.read_tables(windows.ids_NT.shape[1])
    moves = None if tables is None else measure_channel_moves(tables, _capture_ids(windows))
    if moves is None:
        return {}
    first, *_, last = moves.square().tensor_split(4)
    return {
        "move of a channel, first quarter": float(first.mean().sqrt()),
        "move of a channel, last quarter": float(last.mean().sqrt()),
        "move of a channel, largest": float(moves.max()),
        "share of channels that hardly move": float((moves < STILL).double().mean()),
    }


def _measure_participation(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return how many directions the positions in use fill, and how many as many random rows would."""
    tables = subject.read_tables(windows.ids_NT.shape[1])
    if tables is None:
        return {}
    rows_TD = tables.positions_ND[: windows.ids_NT.shape[1]][_capture_ids(windows).measured_T]
    if float((rows_TD - rows_TD.mean(0)).abs().max()) == 0:
        return {}
    return {
        "directions filled by positions": compute_participation(rows_TD),
        "directions filled by random rows": compute_random_participation(*rows_TD.shape),
    }


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
    rows_ND = read_rows(subject)
    if isinstance(rows_ND, str):
        return {}
    linear, rotation = measure_random_split(rows_ND)
    similarity = compute_toeplitz_r2(compute_cosines(rows_ND - rows_ND.mean(0)))
    return {
        "error of a step as a linear map": linear,
        "error of a step as a rotation": rotation,
        "similarity told by distance": similarity,
    }


def _measure_survival(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return the shares of positions and of words that can be read back, by layer."""
    recorded = _capture_mixed(subject, windows)
    probes = probe_layers(subject, recorded)
    chance = {"position read back by chance": 1 / int(recorded.measured_T.sum())}
    positions = {f"position read back, layer {i}": value for i, value in enumerate(probes.position_shares)}
    return positions | {f"word read back, layer {i}": value for i, value in enumerate(probes.token_shares)} | chance


def _measure_terms(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return the shares of the four terms, of the two of every query, and of all others in a layer's logits.

    They are shares of variance. A position's part of a state is the mean over texts at that position, less the mean
    over all positions, which is a third part. The seven add up to 1; one can be slightly negative, since a covariance
    can. A layer whose logits are all equal, or whose terms miss them, is left out. Source: ``logit_parts``, from eq. 6
    of Ke et al. 2021 (TUPE).
    """
    recorded = _capture_mixed(subject, windows)
    shares: dict[str, float] = {}
    for layer in recorded.layers:
        split = split_logits(layer, windows.ordinary_T)
        if split.error > EXACT or not float(split.var_NH.sum()) > 0:
            continue
        share_t, number = split.compute_layer_shares(), layer.index + 1
        named = {
            f"{name}, layer {number}": float(share_t[TERMS.index(term)])
            for term, name in (FOUR_TERMS | OF_EVERY_QUERY).items()
        }
        shares |= named | {f"other terms, layer {number}": 1 - sum(named.values())}
    return shares


def _measure_mixing(subject: Subject, windows: Windows) -> dict[str, float]:
    """Return the share of QᵀK that joins the positions' directions with others, and by chance."""
    recorded = _capture_mixed(subject, windows)
    shares: dict[str, float] = {}
    for layer in recorded.layers:
        mixed = measure_mixed_share(layer, recorded.measured_T)
        if mixed is not None:
            share, by_chance, _ = mixed
            shares[f"mixed share of QK, layer {layer.index + 1}"] = share
            shares[f"mixed share of QK by chance, layer {layer.index + 1}"] = by_chance
    return shares


def _capture_mixed(subject: Subject, windows: Windows) -> Capture:
    """Run the model on texts in which no token has a usual position: shuffled where they are whole sentences.

    In sentences some tokens would give their position away, and the mean over texts at a position would hold words that
    are usual there. A language model reads windows that were cut anywhere, which stay as they are. The shuffle is
    always the same.
    """
    ids_NT = windows.ids_NT
    if subject.encoder_decoder is not None:
        generator, positions = torch.Generator().manual_seed(0), windows.ordinary_T.nonzero().flatten()
        ids_NT = ids_NT.clone()
        for text in ids_NT:
            text[positions] = text[positions[torch.randperm(len(positions), generator=generator)]]
    return capture(subject.model, subject.forward, ids_NT, ordinary_T=windows.ordinary_T, batch=AT_ONCE)


MEASURE_FUNCTIONS: Mapping[str, Callable[[Subject, Windows], dict[str, float]]] = {
    "loudness": _measure_loudness,
    "channels": _measure_channels,
    "participation": _measure_participation,
    "directions": _measure_directions,
    "recovery": _measure_recovery,
    "louder": _measure_louder_positions,
    "shift": _measure_steps,
    "survival": _measure_survival,
    "terms": _measure_terms,
    "mixing": _measure_mixing,
}
"""The function behind each name that ``inside = [...]`` may hold in the plan of a comparison.

Most are names of measures of ``inspect``. "louder" is ``recovery`` with louder positions. "shift" belongs to
``table.shift`` and ``table.similarity``: it is a step along the table, judged on random rows, and not the
interventions that shift all positions. "terms" is ``logits.layers``. Saved comparisons keep these names."""
