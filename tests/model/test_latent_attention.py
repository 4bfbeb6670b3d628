"""Compressed keys and values; ``interchange/test_weights`` compares them with DeepSeek-V3's of transformers."""

from __future__ import annotations

import torch

from clockhands.model.latent_attention import LatentAttention
from tests.model.tiny import core, model, words

OPTIONS = {"latent_width": 12, "latent_query_width": 10, "shared_key_dim": 4, "value_dim": 6}


@torch.no_grad()
def test_keys_and_values_of_all_heads_come_from_one_state() -> None:
    attention = LatentAttention(core(kind="decoder", **OPTIONS)).double()
    x_BSD = torch.randn(1, 3, 32, dtype=torch.float64)
    _, keys, values = attention.project(x_BSD)
    for token in range(3):
        latent = attention.kv_down.weight[:12] @ x_BSD[0, token]
        latent = latent / (latent.square().mean() + 1e-6).sqrt() * attention.kv_latent_norm.weight
        rows = (attention.kv_up.weight @ latent).view(4, 4 + 6)
        shared = attention.kv_down.weight[12:] @ x_BSD[0, token]
        for head in range(4):
            torch.testing.assert_close(keys[0, head, token], torch.cat([shared, rows[head, :4]]))
            torch.testing.assert_close(values[0, head, token], rows[head, 4:])


@torch.no_grad()
def test_token_by_token_is_all_at_once() -> None:
    made, text = model(decoder={"scheme": "rope", "fraction": 0.5}, **OPTIONS), words(2, 12)
    first = made(input_ids=text[:, :-1], use_cache=True)
    last = made(input_ids=text[:, -1:], past_key_values=first.past_key_values, use_cache=True)
    torch.testing.assert_close(last.logits[:, 0], made(input_ids=text).logits[:, -1], rtol=1e-5, atol=1e-5)
