"""The estimate of memory is what a search really holds, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.generation.memory_check import estimate_bytes
from clockhands.model.huggingface import ClockhandsForSeq2SeqLM
from tests.generation.engines.writers import END, writer
from tests.model.tiny import model, words

BATCH, BEAM, LENGTH, SOURCE = 3, 4, 6, 5


def measure_bytes(model: ClockhandsForSeq2SeqLM) -> int:
    """Count the bytes of the cached tokens and of the encoder's output, at the end of texts of ``LENGTH`` tokens.

    ``generate`` holds what the source gave once for each hypothesis; the estimate is a lower bound, and counts it once.
    """
    model.transformer.output.bias.data[END] = -100.0
    ids_BT = torch.randint(3, 20, (BATCH, SOURCE))
    # The last token is written, not read: LENGTH tokens are cached when LENGTH more than the start token are asked for.
    out = model.generate(ids_BT, num_beams=BEAM, max_new_tokens=LENGTH, do_sample=False, return_dict_in_generate=True)
    own = sum(layer.keys.nbytes + layer.values.nbytes for layer in out.past_key_values.self_attention_cache.layers)
    source = sum(layer.keys.nbytes + layer.values.nbytes for layer in out.past_key_values.cross_attention_cache.layers)
    width, size = model.config.transformer_config.d_model, next(model.parameters()).element_size()
    return own + source // BEAM + BATCH * SOURCE * width * size


def estimate(model: ClockhandsForSeq2SeqLM) -> int:
    return estimate_bytes(model, batch=BATCH, beam=BEAM, length=LENGTH, source_length=SOURCE)


def test_a_search_holds_what_is_estimated() -> None:
    made = writer("rope")
    assert estimate(made) == measure_bytes(made)


def test_where_positions_are_cached_too_a_search_holds_more() -> None:
    made = writer("rope", decoder="cope")
    assert estimate(made) <= measure_bytes(made)


def test_where_nothing_can_be_cached_one_layer_at_a_time_has_keys() -> None:
    by_length: Any = {"scheme": "index", "normalise": "length"}
    assert estimate(writer("rope", decoder=by_length)) < estimate(writer("rope"))


@pytest.mark.parametrize("options", [{"latent_width": 8, "value_dim": 2}, {"latent_width": 8, "value_dim": 12}])
def test_values_of_another_width_than_keys_are_estimated_as_they_are_cached(options: dict[str, int]) -> None:
    made = writer("rope", **options)
    assert made.config.transformer_config.resolved_head_dim not in (2, 12)
    assert estimate(made) == measure_bytes(made)


@pytest.mark.parametrize("heads", [1, 2])
def test_grouped_heads_are_cached_once_a_group_as_estimated(heads: int) -> None:
    made = writer("rope", num_kv_heads=heads)
    assert made.config.transformer_config.num_heads > heads
    assert estimate(made) == measure_bytes(made)


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


def test_the_states_of_a_wide_encoder_layer_count_where_they_are_more_than_the_cache() -> None:
    made = model(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=4096)
    size = next(made.parameters()).element_size()
    assert estimate_bytes(made, batch=2, beam=1, length=4, source_length=100) == size * 2 * 100 * (2 * 32 + 4096)
