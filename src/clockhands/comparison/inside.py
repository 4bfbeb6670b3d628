"""What is measured inside a model of a trial, before and after training, with the measures of ``inspect``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from clockhands.data.encoding import encode_texts
from clockhands.inspection import Capture, Subject, capture
from clockhands.inspection.measures import directions, recovery, survival
from clockhands.inspection.measures.loudness import levels
from clockhands.training import Material

TEXTS = 96


def inside(model: Any, material: Material, measures: Sequence[str]) -> dict[str, float]:
    """Numbers by name; a measure that does not apply to a model (no encoding at the input) gives none."""
    found: dict[str, float] = {}
    if measures:
        subject = Subject.of(model)
        ids_NT, ordinary_T = _texts(material)
        with torch.no_grad():
            for name in measures:
                found |= MEASURES[name](subject, ids_NT, ordinary_T)
    return {name: round(value, 5) for name, value in found.items()}


def _texts(material: Material) -> tuple[torch.Tensor, torch.Tensor]:
    """Sources of the most frequent length among the test items; the token that ends each is not ordinary."""
    corpus = material.corpus
    split = "test" if "test" in corpus else "validation"
    ids = encode_texts(material.tokenizers.source, corpus.sources(split))
    usual = max({len(row) for row in ids}, key=lambda length: (sum(len(row) == length for row in ids), length))
    ids_NT = torch.tensor([row for row in ids if len(row) == usual][:TEXTS])
    ordinary_T = torch.ones(usual, dtype=torch.bool)
    ordinary_T[-1] = False
    return ids_NT, ordinary_T


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


def _survival(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    found = survival.probe(subject, capture(subject.model, subject.forward, ids_NT, ordinary_T=ordinary_T))
    return {f"position read back, layer {i}": value for i, value in enumerate(found.position)}


MEASURES: Mapping[str, Callable[[Subject, torch.Tensor, torch.Tensor], dict[str, float]]] = {
    "loudness": _loudness,
    "directions": _directions,
    "recovery": _recovery,
    "survival": _survival,
}
