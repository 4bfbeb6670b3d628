"""What is measured inside a model of a trial, before, during and after training, with the measures of ``inspect``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clockhands.data import Corpus
from clockhands.data.encoding import encode_texts
from clockhands.inspection import Capture, Subject, capture
from clockhands.inspection.measures import directions, recovery, survival, table
from clockhands.inspection.measures.loudness import levels
from clockhands.training import Material

TEXTS = 96
"""Of one length; so many at least where the corpus has them."""
CHEAP = ("loudness",)
MOST_READ = 5000
"""Training sources among which they are sought."""


class Inside:
    """Looks into the models of one trial, always with the same texts."""

    def __init__(self, material: Material, measures: Sequence[str]) -> None:
        self.material, self.measures = material, measures

    @cached_property
    def texts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """N texts of T tokens, and which of the T places hold ordinary ones."""
        return _texts(self.material.tokenizers.source, self.material.corpus)

    @torch.no_grad()
    def look(self, model: Any, measures: Sequence[str] | None = None) -> dict[str, float]:
        """Numbers by name; a measure that does not apply to a model (no encoding at the input) gives none."""
        found: dict[str, float] = {}
        for name in self.measures if measures is None else measures:
            found |= MEASURES[name](Subject.of(model), *self.texts)
        return {name: round(value, 5) for name, value in found.items()}


class During(TrainerCallback):
    """Looks whenever the validation loss is taken, with those measures that cost next to nothing."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside
        self.measures = [name for name in inside.measures if name in CHEAP]
        self.seen: list[tuple[int, dict[str, float]]] = []

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        if self.measures:
            self.seen.append((state.global_step, self.inside.look(model, self.measures)))


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
    chance = found.reference("random rotations")
    if not isinstance(found.value, float) or chance is None:
        return {}
    return {"overlap": found.value, "overlap by chance": float(chance.value), "overlap z": float(found.details["z"])}


def _recovery(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    found = recovery.recovery(subject, Capture(ids_NT, [], [], ordinary_T))
    return {"words recovered": float(found.value)} if isinstance(found.value, float) else {}


def _louder(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    """Words recovered if the positions were 4 and 16 times as long, and if random vectors of that length were added."""
    rows = recovery.recovery(subject, Capture(ids_NT, [], [], ordinary_T)).table.rows
    found = {float(factor or 0): (float(mine or 0), float(chance or 0)) for factor, mine, chance in rows}
    return {
        f"words recovered, {what} {factor:g} times as long": found[factor][i]
        for factor in (4.0, 16.0)
        for i, what in enumerate(("positions", "random vectors"))
        if factor in found
    }


def _shift(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    """Of the table alone: what ``inspect`` asks of it, without a text."""
    rows = table.rows_in_use(subject)
    if rows is None:
        return {}
    linear, rotation = table.shift_errors(table.principal(rows), 1)
    similar = table.similarity(subject).value
    assert isinstance(similar, float)
    return {
        "error of a step as a linear map": linear,
        "error of a step as a rotation": rotation,
        "similarity told by distance": similar,
    }


def _survival(subject: Subject, ids_NT: torch.Tensor, ordinary_T: torch.Tensor) -> dict[str, float]:
    """The words of every text are put into a random order first, or else some words would give their place away."""
    generator = torch.Generator().manual_seed(0)
    places = ordinary_T.nonzero().flatten()
    shuffled_NT = ids_NT.clone()
    for text in shuffled_NT:
        text[places] = text[places[torch.randperm(len(places), generator=generator)]]
    recorded = capture(subject.model, subject.forward, shuffled_NT, ordinary_T=ordinary_T)
    found = survival.probe(subject, recorded)
    chance = {"position read back by chance": 1 / int(recorded.counted_T.sum())}
    return {f"position read back, layer {i}": value for i, value in enumerate(found.position)} | chance


MEASURES: Mapping[str, Callable[[Subject, torch.Tensor, torch.Tensor], dict[str, float]]] = {
    "loudness": _loudness,
    "directions": _directions,
    "recovery": _recovery,
    "louder": _louder,
    "shift": _shift,
    "survival": _survival,
}
