"""The estimate of memory is what a search really holds, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.generation.engines.hypotheses import (
    Hypotheses,
    SeparateCacheHypotheses,
    SharedCacheHypotheses,
    UncachedHypotheses,
    make_hypotheses,
)
from clockhands.generation.memory_check import estimate_bytes
from clockhands.model import TokenBatch
from clockhands.model.lean import LeanDecoder
from tests.generation.engines.test_clockhands import writer

BATCH, BEAM, LENGTH, SOURCE = 3, 4, 6, 5


def measure_bytes(hypotheses: Hypotheses) -> int:
    """Count the bytes of the cached tokens and of the encoder's output; room that is not used is not counted."""
    total = hypotheses.source.states_BTD.nbytes
    if isinstance(hypotheses, (SharedCacheHypotheses, SeparateCacheHypotheses)):
        for cache in (hypotheses.state.self_attention, hypotheses.state.cross_attention):
            for layer in cache.layers:
                total += 2 * layer._keys[:, :, : layer.length].nbytes
    return total


@pytest.mark.parametrize(
    ("scheme", "way"),
    [
        ("rope", SharedCacheHypotheses),
        ("cope", SeparateCacheHypotheses),
        ({"scheme": "index", "normalise": "length"}, UncachedHypotheses),
    ],
)
def test_a_search_holds_at_least_what_is_estimated(scheme: Any, way: type[Hypotheses]) -> None:
    model = writer("rope", decoder=scheme, d_ff=16)
    decoder = LeanDecoder(model.transformer)
    ids_BT = torch.randint(3, 20, (BATCH, SOURCE))
    with torch.inference_mode():
        hypotheses = make_hypotheses(decoder, model.transformer.encode(TokenBatch(ids_BT, None)), BEAM)
        assert isinstance(hypotheses, way)
        for _ in range(LENGTH):
            hypotheses.step(torch.full((BATCH, BEAM), 3), None)
    estimated = estimate_bytes(model, batch=BATCH, beam=BEAM, length=LENGTH, source=SOURCE)
    if way is SharedCacheHypotheses:
        assert estimated == measure_bytes(hypotheses)
    elif way is SeparateCacheHypotheses:
        assert estimated < measure_bytes(hypotheses)
    else:
        cached = estimate_bytes(writer("rope", d_ff=16), batch=BATCH, beam=BEAM, length=LENGTH, source=SOURCE)
        assert estimated < cached, "only one layer at a time has keys"


@pytest.mark.parametrize("heads", [1, 2])
def test_grouped_heads_are_cached_once_a_group_as_estimated(heads: int) -> None:
    model = writer("rope", num_kv_heads=heads, d_ff=16)
    assert model.config.transformer_config.num_heads > heads
    ids_BT = torch.randint(3, 20, (BATCH, SOURCE))
    with torch.inference_mode():
        hypotheses = make_hypotheses(
            LeanDecoder(model.transformer), model.transformer.encode(TokenBatch(ids_BT, None)), BEAM
        )
        for _ in range(LENGTH):
            hypotheses.step(torch.full((BATCH, BEAM), 3), None)
    estimated = estimate_bytes(model, batch=BATCH, beam=BEAM, length=LENGTH, source=SOURCE)
    assert estimated == measure_bytes(hypotheses)


@pytest.mark.parametrize("scheme", ["rope", "cope"])
def test_sources_that_leave_take_their_states_with_them(scheme: str) -> None:
    model = writer("rope", decoder=scheme)
    ids_BT = torch.randint(3, 20, (BATCH, SOURCE))
    with torch.inference_mode():
        hypotheses = make_hypotheses(
            LeanDecoder(model.transformer), model.transformer.encode(TokenBatch(ids_BT, None)), 2
        )
        rows = len(hypotheses.source.states_BTD)
        hypotheses.select(torch.tensor([1]))
    assert len(hypotheses.source.states_BTD) == rows // BATCH
