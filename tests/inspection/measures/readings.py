"""What the tests of single measures share: tables, splits and interventions of models made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from clockhands.findings import Finding
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.head_statistics import HeadStatistics
from clockhands.inspection.reading.interventions import Interventions
from clockhands.inspection.reading.layer import FrozenNormsAndPositions, Layer
from clockhands.inspection.reading.logit_split import TERMS, compute_means, split_by_batch
from clockhands.inspection.reading.reading import Reading
from clockhands.model import PositionConfig
from clockhands.models.subject import Subject

from .. import planted
from ..planted import HALF
from ..tiny import VOCAB as TINY_VOCAB
from ..tiny import own


def answer_splits(name: str, splits: list[Any]) -> Finding:
    return MEASURES[name].run(replace(Reading.without_text(Subject.of(planted.uniform())), logit_splits=splits))


def answer_heads(name: str, layer: HeadStatistics) -> Finding:
    return MEASURES[name].run(replace(Reading.without_text(Subject.of(planted.uniform())), head_statistics=[layer]))


@torch.no_grad()
def with_tables(tokens: torch.Tensor, positions: torch.Tensor) -> tuple[Subject, Capture]:
    model = planted.bert()
    model.embeddings.word_embeddings.weight.copy_(tokens)
    model.embeddings.position_embeddings.weight.copy_(positions)
    return planted.subject_of(model)


def random_rows(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, 64, generator=torch.Generator().manual_seed(seed))


def half_rows(rows: int, upper: bool) -> torch.Tensor:
    """Random rows in one half of the dimensions."""
    table = torch.zeros(rows, 64)
    table[:, slice(HALF, 64) if upper else slice(0, HALF)] = random_rows(rows, int(upper))[:, :HALF]
    return table


def split_layers(model: Any, texts: int = 48) -> list[Any]:
    return planted.split(planted.subject_of(model, texts)[1])


@torch.no_grad()
def attend_to_content(scheme: str = "none") -> Any:
    """Random queries and keys of tokens, and no position anywhere but what ``scheme`` adds."""
    model: Any = planted.uniform("encoder", scheme)
    rows = model.encoder.blocks[0].attention.qkv.weight[:64]
    rows.copy_(torch.randn(64, 32, generator=torch.Generator().manual_seed(0)) / 8)
    return model


def intervene_on(model: Any) -> tuple[dict[str, Finding], Interventions]:
    """What ``inspect`` finds by intervention, and the interventions themselves."""
    subject, recorded = planted.subject_of(model)
    reading = Reading(subject, recorded, planted.split(recorded))
    for name in ("kernel", "cause.tokens", "cause"):
        reading.findings[name] = MEASURES[name].run(reading)
    return reading.findings, reading.interventions


WINDOW = 20
"""Tokens in the windows of ``draw_ids``."""


def draw_ids() -> torch.Tensor:
    """Draw token ids for a tiny model."""
    return torch.randint(3, TINY_VOCAB, (16, WINDOW), generator=torch.Generator().manual_seed(0))


def read_own(position: PositionConfig, **settings: Any) -> tuple[Subject, Capture]:
    """Capture a decoder of two layers with this position, its weights random; ``settings`` are others of the model."""
    subject = Subject.of(own(position, "decoder", **settings))
    return subject, capture(subject.model, subject.forward, draw_ids())


def check_terms(layer: Layer, bound: float, true_NHST: torch.Tensor | None = None) -> None:
    """The terms of the logits add up to these, or to those that the layer computes when it runs again."""
    for rows, batch in split_by_batch(layer):
        allowed = batch.real.mask_BHST
        total = sum((batch.compute_term(term) for term in TERMS), torch.zeros(()))[allowed]
        logits = (batch.real.logits_BHST if true_NHST is None else true_NHST[rows])[allowed]
        error = float((total - logits).abs().max() / logits.abs().max())
        assert error < bound
        assert error == pytest.approx(batch.measure_error(), abs=bound)


def check_order_of_parts(layer: Layer, tolerance: float) -> None:
    """What a part gives alone, less what nothing gives, is what it adds to the others: between input and queries all is
    affine."""
    rows, batch = next(split_by_batch(layer, crossfit=False))
    mean, place = compute_means(layer, torch.arange(len(layer.inputs_NTD)))
    x = layer.inputs_NTD[rows]
    frozen = FrozenNormsAndPositions(layer.module, layer.scheme)
    with frozen.record():
        layer.replay(x)
    with frozen.apply():
        alone = {"content": x - mean - place, "position": place.expand_as(x), "nothing": torch.zeros_like(x)}
        runs = {part: layer.replay(value) for part, value in alone.items()}
    for part in ("content", "position"):
        for found, nothing, expected in (
            (runs[part].q_BHSK, runs["nothing"].q_BHSK, batch.q[part]),
            (runs[part].k_BHTK, runs["nothing"].k_BHTK, batch.k[part]),
        ):
            torch.testing.assert_close(found - nothing, expected, atol=tolerance, rtol=tolerance)
