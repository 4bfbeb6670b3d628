"""A trained encoder taken apart: which directions words and positions have, and what QᵀK connects.

The encoder is read with `clockhands.inspection`, and no weight of it is kept: what is computed is a handful of numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from clockhands.data import open_corpus
from clockhands.inspection import Capture, Layer, Subject, capture, cut_windows, open_subject
from clockhands.inspection.estimators.matrix_statistics import (
    compute_covariance,
    compute_participation,
    compute_random_participation,
)
from clockhands.inspection.measures.directions import POSITION_PART, find_subspace, measure_mixed_share
from clockhands.inspection.measures.loudness import STILL, measure_channel_moves, measure_levels
from clockhands.shapes import Tensor
from exact.added import Numbers

TEXTS, LENGTH = 48, 128


def compute_trade_off(width: int = 64, words: int = 12, positions: int = 8) -> Numbers:
    """Return how near one matrix comes to a wanted word–word and a wanted position–position term at once.

    ``words`` and ``positions`` are how many directions each has. With orthonormal bases B and C of the two, which are
    apart, M = B X Bᵀ + C Y Cᵀ has the terms X and Y and no mixed one. Its rank is ``words + positions``, and a head of
    fewer channels has an M of a lower rank; the best one of half that rank is the truncated singular value
    decomposition (Eckart & Young 1936).
    """
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    bases = torch.linalg.qr(draw(width, words + positions)).Q
    b, c = bases[:, :words], bases[:, words:]
    x, y = draw(words, words), draw(positions, positions)
    matrix = b @ x @ b.T + c @ y @ c.T
    wanted = (b.T @ matrix @ b - x) / x.norm(), (c.T @ matrix @ c - y) / y.norm(), b.T @ matrix @ c, c.T @ matrix @ b
    singular = torch.linalg.svdvals(matrix)
    rest = singular[(words + positions) // 2 :]
    return {
        "error": max(float(part.norm()) for part in wanted),
        "channels needed": int(torch.linalg.matrix_rank(matrix)),
        "lost with half the channels": 100 * float(rest.norm() / singular.norm()),
    }


@torch.no_grad()
def measure_trained_encoder(folder: str | Path) -> Numbers:
    """Return what the answers tell of a trained encoder with a position table: its rows, its split, its QᵀK by layer.

    Raises as ``open_subject`` for a folder without a model, AttributeError for a model that is not built as BERT is.
    """
    subject = open_subject(folder)
    documents = open_corpus("stdlib").documents("train")
    windows = cut_windows(subject.tokenizer, documents, length=LENGTH, count=TEXTS, max_length=subject.max_length)
    recorded = capture(subject.model, subject.forward, windows.ids_NT, ordinary_T=windows.ordinary_T)
    values = _measure_rows(subject, recorded)
    for layer in recorded.layers:
        values |= _measure_layer(layer, recorded)
    return values | _force_split(subject, recorded)


def _find_bert(model: Any) -> Any:
    """Return the encoder itself, which may stand inside a model with a head."""
    return model if hasattr(model, "encoder") else model.bert


def _measure_rows(subject: Subject, recorded: Capture) -> Numbers:
    """Return how large the entries of the tables are, what words have in the positions' directions, how many these are.

    Row 0 of the positions, an outlier that every text has at its start, is left out. How far positions move a channel,
    and the lengths of rows, are those of the text: its tokens, and the positions that it has.
    """
    tables = subject.read_tables()
    assert tables is not None, "this encoder has a table of positions"
    words, positions = tables.tokens_VD.double(), tables.positions_ND[1:].double()
    basis = find_subspace(compute_covariance(positions), POSITION_PART)
    covariance = compute_covariance(words)
    levels, moves = measure_levels(tables, recorded), measure_channel_moves(tables, recorded)
    assert moves is not None, "every channel of its words varies"
    return {
        "entry of a word": float(words.square().mean().sqrt()),
        "entry of a position": float(positions.square().mean().sqrt()),
        "largest entry of a position": float(positions.abs().max()),
        "length of a word's row": levels.token_length,
        "length of a position's row": levels.position_length,
        "move of a channel, median": float(moves.median()),
        "move of a channel, largest": float(moves.max()),
        "channels that hardly move": int((moves < STILL).sum()),
        "filled by positions": compute_participation(positions),
        "filled by random rows": compute_random_participation(len(positions), positions.shape[1]),
        "filled by words": compute_participation(words),
        "filled by random words": compute_random_participation(len(words), words.shape[1], draws=1),
        "directions of positions": basis.shape[1],
        "words in them": 100 * float((basis.T @ covariance @ basis).trace() / covariance.trace()),
        "words in them by chance": 100 * basis.shape[1] / len(covariance),
    }


def _measure_layer(layer: Layer, recorded: Capture) -> Numbers:
    """Return the mixed share of QᵀK at the directions that positions have there, its reference, and their ratio.

    In percent.
    """
    mixed = measure_mixed_share(layer, recorded.measured_T)
    assert mixed is not None, "positions have directions in every layer of this encoder"
    (share, by_chance, num_directions), number = mixed, layer.index + 1
    return {
        f"mixed in QK, layer {number}": 100 * share / by_chance,
        f"mixed share of QK, layer {number}": 100 * share,
        f"mixed share of QK by chance, layer {number}": 100 * by_chance,
        f"directions, layer {number}": num_directions,
    }


def _force_split(subject: Subject, recorded: Capture) -> Numbers:
    """Return the cosine of the last states with those of a model whose sum is a concatenation, in two ways.

    Words lose the directions of positions, and positions keep those alone, so that both stand side by side in a rotated
    basis. Control: as many random directions. Beside them, the cosine of the states of two texts.
    """
    embeddings = _find_bert(subject.model).embeddings
    words: Tensor = embeddings.word_embeddings.weight
    positions: Tensor = embeddings.position_embeddings.weight
    kept = words.clone(), positions.clone()
    trained = find_subspace(compute_covariance(positions[1:]), POSITION_PART)
    generator = torch.Generator().manual_seed(0)
    random = torch.linalg.qr(torch.randn(trained.shape, generator=generator, dtype=torch.float64)).Q
    values: Numbers = {}
    for name, basis in (("its own", trained), ("random", random)):
        projector = (basis @ basis.T).to(words.dtype)
        word_mean, position_mean = kept[0].mean(0), kept[1].mean(0)
        words.copy_(word_mean + (kept[0] - word_mean) @ (torch.eye(len(projector)) - projector))
        positions.copy_(position_mean + (kept[1] - position_mean) @ projector)
        changed = capture(subject.model, subject.forward, recorded.ids_NT, ordinary_T=recorded.ordinary_T).hidden[-1]
        cosines = torch.cosine_similarity(changed.mean(1), recorded.hidden[-1].mean(1), dim=1)
        values[f"cosine when split, {name} directions"] = float(cosines.mean())
        words.copy_(kept[0])
        positions.copy_(kept[1])
    vectors_ND = torch.nn.functional.normalize(recorded.hidden[-1].mean(1), dim=1)
    others_NN = vectors_ND @ vectors_ND.T
    values["cosine of two texts"] = float(others_NN[~torch.eye(len(others_NN), dtype=torch.bool)].mean())
    return values
