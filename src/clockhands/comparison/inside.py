"""What is measured inside a model of a trial, before and after training, with the measures of ``inspect``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from clockhands.data import Corpus
from clockhands.data.encoding import encode_texts
from clockhands.inspection import Capture, Subject, capture
from clockhands.inspection.measures import directions, recovery, survival, table
from clockhands.inspection.measures.loudness import levels
from clockhands.training import Material

TEXTS = 96
"""Of one length; so many at least where the corpus has them."""
MOST_READ = 5000
"""Training sources among which they are sought."""


def inside(model: Any, material: Material, measures: Sequence[str]) -> dict[str, float]:
    """Numbers by name; a measure that does not apply to a model (no encoding at the input) gives none."""
    found: dict[str, float] = {}
    if measures:
        subject = Subject.of(model)
        ids_NT, ordinary_T = _texts(material.tokenizers.source, material.corpus)
        with torch.no_grad():
            for name in measures:
                found |= MEASURES[name](subject, ids_NT, ordinary_T)
    return {name: round(value, 5) for name, value in found.items()}


def _texts(tokenizer: Any, corpus: Corpus) -> tuple[torch.Tensor, torch.Tensor]:
    """The longest sources of one length of which the training text has enough, else those of the most frequent length.

    The token that ends each is not ordinary.
    """
    by_length: dict[int, list[list[int]]] = {}
    for row in encode_texts(tokenizer, corpus.sources("train")[:MOST_READ]):
        by_length.setdefault(len(row), []).append(row)
    enough = [length for length, rows in by_length.items() if len(rows) >= TEXTS]
    chosen = max(enough) if enough else max(by_length, key=lambda length: (len(by_length[length]), length))
    ordinary_T = torch.ones(chosen, dtype=torch.bool)
    ordinary_T[-1] = False
    return torch.tensor(by_length[chosen][:TEXTS]), ordinary_T


def _loudness(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    tables = subject.tables()
    if tables is None:
        return {}
    found = levels(tables, Capture(ids_NT, [], [], ordinary_T))
    return {"word over position": found.ratio, "position's share": found.share}


def _directions(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    found = directions.directions(subject, Capture(ids_NT, [], [], ordinary_T))
    if not isinstance(found.value, float) or found.null is None:
        return {}
    return {"overlap": found.value, "overlap by chance": float(found.null), "overlap z": float(found.details["z"])}


def _recovery(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    found = recovery.recovery(subject, Capture(ids_NT, [], [], ordinary_T))
    return {"words recovered": float(found.value)} if isinstance(found.value, float) else {}


def _shift(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    """Of the table alone: what ``inspect`` asks of it, without a text."""
    rows = table.rows_in_use(subject)
    if rows is None:
        return {}
    linear, rotation = table.shift_errors(table.principal(rows), 1)
    similar = table.similarity(subject).value
    return {
        "error of a step as a linear map": linear,
        "error of a step as a rotation": rotation,
        "similarity told by distance": float(similar or 0.0),
    }


def _survival(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    """The words of every text are put into a random order first, or else some words would give their place away."""
    generator = torch.Generator().manual_seed(0)
    places = ordinary_T.nonzero().flatten()
    shuffled_NT = ids_NT.clone()
    for text in shuffled_NT:
        text[places] = text[places[torch.randperm(len(places), generator=generator)]]
    found = survival.probe(subject, capture(subject.model, subject.forward, shuffled_NT, ordinary_T=ordinary_T))
    chance = {"position read back by chance": 1 / len(places)}
    return {f"position read back, layer {i}": value for i, value in enumerate(found.position)} | chance


MEASURES: Mapping[str, Callable[[Subject, torch.Tensor, torch.Tensor], dict[str, float]]] = {
    "loudness": _loudness,
    "directions": _directions,
    "recovery": _recovery,
    "shift": _shift,
    "survival": _survival,
}
