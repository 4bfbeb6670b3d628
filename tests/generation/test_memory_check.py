"""The estimate of memory is what a search really holds, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.generation.engines.hypothesis_decoder import (
    HypothesisDecoder,
    SeparateCacheDecoder,
    SharedCacheDecoder,
    UncachedDecoder,
    make_hypothesis_decoder,
)
from clockhands.generation.memory_check import estimate_bytes
from clockhands.model import TokenBatch
from clockhands.model.lean import LeanDecoder
from tests.generation.engines.test_clockhands import writer
from tests.model.tiny import model, words

BATCH, BEAM, LENGTH, SOURCE = 3, 4, 6, 5


def measure_bytes(decoder: HypothesisDecoder) -> int:
    """Count the bytes of the cached tokens and of the encoder's output; room that is not used is not counted."""
    total = decoder.source.states_BTD.nbytes
    if isinstance(decoder, (SharedCacheDecoder, SeparateCacheDecoder)):
        for cache in (decoder.state.cache, decoder.state.cross_cache):
            for layer in cache.layers:
                total += layer.keys.nbytes + layer.values.nbytes
    return total


@pytest.mark.parametrize(
    ("scheme", "way"),
    [
        ("rope", SharedCacheDecoder),
        ("cope", SeparateCacheDecoder),
        ({"scheme": "index", "normalise": "length"}, UncachedDecoder),
    ],
)
def test_a_search_holds_at_least_what_is_estimated(scheme: Any, way: type[HypothesisDecoder]) -> None:
    model = writer("rope", decoder=scheme, d_ff=16)
    lean_decoder = LeanDecoder(model.transformer)
    ids_BT = torch.randint(3, 20, (BATCH, SOURCE))
    with torch.inference_mode():
        decoder = make_hypothesis_decoder(lean_decoder, model.transformer.encode(TokenBatch(ids_BT, None)), BEAM)
        assert isinstance(decoder, way)
        for _ in range(LENGTH):
            decoder.step(torch.full((BATCH, BEAM), 3), None)
    estimated = estimate_bytes(model, batch=BATCH, beam=BEAM, length=LENGTH, source_length=SOURCE)
    if isinstance(decoder, SharedCacheDecoder):
        assert estimated == measure_bytes(decoder)
        shared = estimate_bytes(model, batch=BATCH, beam=BEAM, length=LENGTH, source_length=SOURCE, shared_cache=True)
        assert shared == estimated + decoder.ancestors_BWM.nbytes, "the mask of whose tokens are whose"
    elif way is SeparateCacheDecoder:
        assert estimated < measure_bytes(decoder)
    else:
        cached = estimate_bytes(writer("rope", d_ff=16), batch=BATCH, beam=BEAM, length=LENGTH, source_length=SOURCE)
        assert estimated < cached, "only one layer at a time has keys"


@pytest.mark.parametrize("value_dim", [2, 12])
def test_values_of_another_width_than_keys_are_estimated_as_they_are_cached(value_dim: int) -> None:
    model = writer("rope", latent_width=8, value_dim=value_dim, d_ff=16)
    assert model.config.transformer_config.resolved_head_dim not in (2, 12)
    lean_decoder = LeanDecoder(model.transformer)
    with torch.inference_mode():
        source = model.transformer.encode(TokenBatch(torch.randint(3, 20, (BATCH, SOURCE)), None))
        decoder = make_hypothesis_decoder(lean_decoder, source, BEAM)
        for _ in range(LENGTH):
            decoder.step(torch.full((BATCH, BEAM), 3), None)
    assert estimate_bytes(model, batch=BATCH, beam=BEAM, length=LENGTH, source_length=SOURCE) == measure_bytes(decoder)


def test_the_width_of_a_feed_forward_layer_that_is_nowhere_is_not_counted() -> None:
    """Where every layer has experts, no state is as wide as ``d_ff``."""
    plain, experts = (
        writer("rope", d_ff=4096, **options)
        for options in ({}, {"experts": 2, "expert_width": 4, "shared_expert_width": 5})
    )
    wide, narrow = (
        estimate_bytes(made, batch=BATCH, beam=1, length=1, source_length=SOURCE) for made in (plain, experts)
    )
    assert narrow < wide / 10


@pytest.mark.parametrize("heads", [1, 2])
def test_grouped_heads_are_cached_once_a_group_as_estimated(heads: int) -> None:
    model = writer("rope", num_kv_heads=heads, d_ff=16)
    assert model.config.transformer_config.num_heads > heads
    ids_BT = torch.randint(3, 20, (BATCH, SOURCE))
    with torch.inference_mode():
        decoder = make_hypothesis_decoder(
            LeanDecoder(model.transformer), model.transformer.encode(TokenBatch(ids_BT, None)), BEAM
        )
        for _ in range(LENGTH):
            decoder.step(torch.full((BATCH, BEAM), 3), None)
    estimated = estimate_bytes(model, batch=BATCH, beam=BEAM, length=LENGTH, source_length=SOURCE)
    assert estimated == measure_bytes(decoder)


@pytest.mark.parametrize("scheme", ["rope", "cope"])
def test_sources_that_leave_take_their_states_with_them(scheme: str) -> None:
    model = writer("rope", decoder=scheme)
    ids_BT = torch.randint(3, 20, (BATCH, SOURCE))
    with torch.inference_mode():
        decoder = make_hypothesis_decoder(
            LeanDecoder(model.transformer), model.transformer.encode(TokenBatch(ids_BT, None)), 2
        )
        rows = len(decoder.source.states_BTD)
        decoder.select(torch.tensor([1]))
    assert len(decoder.source.states_BTD) == rows // BATCH


def test_layers_with_windows_hold_their_windows_and_others_all_tokens() -> None:
    window = {"schemes": ["rope", {"scheme": "window", "left": 4}]}
    made, length = model(decoder={"layers": [window, "rope"]}), 24
    cache = made.generate(
        words(2, 5), max_new_tokens=length - 4, min_new_tokens=length - 4, return_dict_in_generate=True
    ).past_key_values
    # Of the layer with a window, positions are kept beside the keys; they are not counted.
    held = sum(layer.values.nbytes * 2 for layer in cache.layers)
    assert estimate_bytes(made, batch=2, beam=1, length=length) == held
    everywhere = model(decoder="rope")
    assert estimate_bytes(everywhere, batch=2, beam=1, length=length) * (4 + length) == held * 2 * length
