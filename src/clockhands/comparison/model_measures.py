"""What is measured inside a model of a trial, before, during and after training, with the measures of ``inspect``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clockhands.data.datasets import WindowDataset
from clockhands.data.encoding import encode_texts
from clockhands.inspection import Subject, Windows, cut_windows
from clockhands.inspection.during_training import CHEAP_MEASURES, MEASURE_FUNCTIONS
from clockhands.inspection.reading.windows import select_one_length
from clockhands.training import TrainingData

TEXTS = 96
"""Texts of one length that are measured on: the length is one of which the corpus has so many, where there is one."""
MOST_READ = 5000
"""Training sources among which these texts are looked for."""
MOST_TOKENS = 64
"""Tokens of a window that a language model is measured on."""


class Inside:
    """Measures inside the models of one trial, always on the same texts, with the ``measures`` of a plan."""

    def __init__(self, material: TrainingData, measures: Sequence[str]) -> None:
        self.material, self.measures = material, measures

    @cached_property
    def texts(self) -> Windows:
        """The longest training sources of one length of which there are enough; of a language model, windows."""
        corpus = self.material.corpus
        if corpus.task == "language modelling":
            windows = self.material.train
            assert isinstance(windows, WindowDataset)
            length = min(MOST_TOKENS, windows.length - 1)  # the last token of a window is only predicted
            tokenizer = self.material.tokenizers.source
            return cut_windows(tokenizer, corpus.documents("train"), length=length, count=TEXTS)
        sources = self.material.corpus.sources("train")[:MOST_READ]
        return select_one_length(encode_texts(self.material.tokenizers.source, sources), TEXTS, enough=TEXTS)

    @torch.no_grad()
    def look(self, model: Any, measures: Sequence[str] | None = None) -> dict[str, float]:
        """Measure a model; return finite numbers by name, none of a measure that does not apply."""
        numbers: dict[str, float] = {}
        for name in self.measures if measures is None else measures:
            numbers |= MEASURE_FUNCTIONS[name](Subject.of(model), self.texts)
        return {name: round(value, 5) for name, value in numbers.items() if math.isfinite(value)}


class During(TrainerCallback):
    """Measures whenever the validation loss is taken, as far as that costs next to nothing; ``seen``: step, numbers."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside
        self.measures = [name for name in inside.measures if name in CHEAP_MEASURES]
        self.seen: list[tuple[int, dict[str, float]]] = []

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        if self.measures:
            self.seen.append((state.global_step, self.inside.look(model, self.measures)))
