"""The other caches of transformers: they work, or are refused in one clear sentence before anything wrong is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, cache_utils
from transformers.cache_utils import (
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    QuantizedLayer,
    StaticSlidingWindowLayer,
)

from clockhands.errors import PositionError
from tests.model.test_laws import DECODERS, depends_on_length, scheme
from tests.model.tiny import model, words

LENGTH = 12
STEPS = [(0, 5), (5, 6), (6, 8), (8, 9), (9, LENGTH)]


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_a_cache_holds_one_head_for_each_group_of_query_heads(name: str) -> None:
    """Grouping keys and values is for a smaller cache; where heads need keys of their own, the cache holds them all."""
    made = model(decoder=scheme(name), num_heads=4, num_kv_heads=2)
    if depends_on_length(made):
        pytest.skip(f"{name} declares that what a token gets changes with the length")
    cache = DynamicCache()
    got, wanted = step_by_step(made, cache)
    torch.testing.assert_close(got, wanted, atol=2e-4, rtol=2e-4)
    own = {"locate"} & made.model.decoder.schemes[0].active_hooks() or name in {"fope", "liere", "mixed", "pope"}
    held = {(tuple(layer.keys.shape[:2]), tuple(layer.values.shape[:2])) for layer in cache.layers}
    assert held == {((2, 4), (2, 4)) if own else ((2, 2), (2, 2))}


@pytest.mark.parametrize("spectrum", [{}, {"spectrum": "longrope", "factor": 3.0, "original_length": 64}])
@torch.no_grad()
def test_values_are_cached_as_rotated_where_keys_are(spectrum: dict[str, Any]) -> None:
    """LongRoPE's angles depend on the length, so keys and values are cached raw there; up to its 64 tokens it waits."""
    factors = {"short_factor": (1.0,) * 4, "long_factor": (4.0,) * 4} if spectrum else {}
    made = model(decoder={"scheme": "rope", "values": True, **spectrum, **factors}, num_heads=4, num_kv_heads=2)
    plain = model(decoder={"scheme": "rope", **spectrum, **factors}, num_heads=4, num_kv_heads=2)
    cache, without = DynamicCache(), DynamicCache()
    got, wanted = step_by_step(made, cache)
    torch.testing.assert_close(got, wanted, atol=2e-4, rtol=2e-4)
    other, _ = step_by_step(plain, without)
    assert (got - other).abs().max() > 0.1
    # The first layer reads the same tokens in both models, so that only a rotation makes its values differ.
    assert torch.equal(cache.layers[0].values, without.layers[0].values) is bool(spectrum)


@pytest.mark.parametrize("beside", ["forgetting", "alibi", "stick-breaking"])
@torch.no_grad()
def test_rotated_values_are_cached_beside_schemes_that_need_positions_again(beside: str) -> None:
    made = model(decoder={"schemes": [beside, {"scheme": "rope", "values": True}]}, num_heads=4, num_kv_heads=2)
    got, wanted = step_by_step(made, DynamicCache())
    torch.testing.assert_close(got, wanted, atol=2e-4, rtol=2e-4)


@torch.no_grad()
def test_the_source_is_cached_once_for_each_group_of_query_heads() -> None:
    made = model("encoder-decoder", num_heads=4, num_kv_heads=1, cross="rope")
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    source, target = words(2, 5), words(2, LENGTH)
    whole = made(input_ids=source, decoder_input_ids=target).logits
    steps = [made(input_ids=source, decoder_input_ids=target[:, a:b], past_key_values=cache).logits for a, b in STEPS]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=2e-4, rtol=2e-4)
    for layer in cache.cross_attention_cache.layers:
        assert layer.keys.shape[:3] == layer.values.shape[:3] == (2, 1, 5)


class Rounding(QuantizedLayer):
    """Eight bits for each key and value, rounded as the back ends of transformers do (which must be installed)."""

    def _quantize(self, tensor: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
        scale = tensor.abs().amax(dim=-1, keepdim=True).clamp(min=1e-9) / 127
        return (tensor / scale).round().clamp(-128, 127).to(torch.int8), scale

    def _dequantize(self, held: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return held[0] * held[1]


def cache_of(made: Any, layer: type, **options: Any) -> DynamicCache:
    cache = DynamicCache()
    cache.layers = [layer(**options) for _ in range(made.config.num_hidden_layers)]
    return cache


@torch.no_grad()
def step_by_step(made: Any, cache: DynamicCache) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits a few words at a time and all at once, of the real words of a row with padding and one without."""
    text, mask = words(2, LENGTH), torch.ones(2, LENGTH, dtype=torch.long)
    mask[0, :3] = 0
    steps = [made(input_ids=text[:, a:b], attention_mask=mask[:, :b], past_key_values=cache).logits for a, b in STEPS]
    return torch.cat(steps, dim=1)[mask.bool()], made(input_ids=text, attention_mask=mask).logits[mask.bool()]


# The oldest transformers that is served has no cache in fp8.
QUANTIZED = [Rounding, *(found for found in [getattr(cache_utils, "Fp8QuantizedLayer", None)] if found)]


@pytest.mark.parametrize("layer", QUANTIZED)
@pytest.mark.parametrize("name", DECODERS)
def test_a_quantized_cache_serves_only_where_no_position_rides_with_the_keys(name: str, layer: type) -> None:
    made = model(decoder=scheme(name))
    if depends_on_length(made):
        pytest.skip(f"{name} declares that what a token gets changes with the length")
    cache = cache_of(made, layer, **({"residual_length": 2} if layer is Rounding else {}))
    own = made.model.decoder.schemes[0]
    if own.declares.cache == "raw" or not own.active_hooks() <= {"encode", "rotate"}:
        with pytest.raises(
            PositionError, match=rf"needs the positions of earlier keys .*{layer.__name__}.* round them"
        ):
            step_by_step(made, cache)
        return
    got, wanted = step_by_step(made, cache)
    # Rounded positions would be off by whole words; eight bits of keys and values cost some hundredths of the logits.
    assert 0 < (got - wanted).abs().mean() < (0.01 if layer is Rounding else 0.05) * wanted.std()


@pytest.mark.parametrize(
    ("layer", "options"), [(DynamicSlidingWindowLayer, {}), (StaticSlidingWindowLayer, {"max_cache_len": 20})]
)
@pytest.mark.parametrize("name", ["sinusoidal", "rope", "alibi", "xpos", "repo"])
def test_trap_26_a_cache_that_forgot_is_refused_at_once(name: str, layer: type, options: dict[str, int]) -> None:
    made = model(decoder=scheme(name))
    with pytest.raises(PositionError, match=r"of 6 keys the cache kept 4, and this model attends to all of them"):
        step_by_step(made, cache_of(made, layer, sliding_window=4, **options))
    got, wanted = step_by_step(made, cache_of(made, layer, sliding_window=20, **options))
    torch.testing.assert_close(got, wanted, atol=2e-4, rtol=2e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="transformers offloads caches from a GPU only")
@pytest.mark.parametrize("name", ["rope", "alibi", "repo", "path"])
def test_an_offloaded_cache_serves(name: str) -> None:
    made, text = model(decoder=scheme(name)).cuda(), words(2, 6).cuda()
    wanted = made.generate(text, max_new_tokens=5, min_new_tokens=5)
    for kind in ("offloaded", "offloaded_static"):
        assert torch.equal(made.generate(text, max_new_tokens=5, min_new_tokens=5, cache_implementation=kind), wanted)


@torch.no_grad()
def test_tokens_that_place_themselves_are_cached_with_keys_that_rotation_widens() -> None:
    """What tells coordinates from channels is the width after rotation, which PoPE doubles."""
    made = model(decoder={"schemes": ["forgetting", "pope"]})
    got, wanted = step_by_step(made, DynamicCache())
    torch.testing.assert_close(got, wanted, atol=2e-4, rtol=2e-4)
