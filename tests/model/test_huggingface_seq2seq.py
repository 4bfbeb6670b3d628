"""The encoder-decoder in the hands of transformers: which KV caches it takes."""

from __future__ import annotations

import pytest
import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from clockhands.errors import UsageError
from tests.model.tiny import model, words


@torch.no_grad()
def test_a_cache_of_one_attention_is_refused_and_the_one_that_the_message_names_serves() -> None:
    made, source, target = model("encoder-decoder"), words(1, 5), words(1, 4)
    remedy = r"pass EncoderDecoderCache\(DynamicCache\(\), DynamicCache\(\)\)"
    with pytest.raises(UsageError, match=f"the KV cache is a DynamicCache, .* {remedy}"):
        made(input_ids=source, decoder_input_ids=target, past_key_values=DynamicCache())
    with pytest.raises(UsageError, match=remedy):
        made.generate(source, past_key_values=DynamicCache(), max_new_tokens=2)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    cached = made(input_ids=source, decoder_input_ids=target, past_key_values=cache).logits
    plain = made(input_ids=source, decoder_input_ids=target, use_cache=False).logits
    torch.testing.assert_close(cached, plain)
    assert cache.get_seq_length() == 4
