"""Weights of models whose layers differ in position, copied into ours: the same logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from clockhands.interchange.position_table import read_position_table
from clockhands.model import TokenBatch, Transformer
from tests.model.peers import from_llama, put, put_linear, put_norm
from tests.model.tiny import VOCABULARY, core, words

LENGTH = 21
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 48, "pad_token_id": 0,
}  # fmt: skip
LLAMA = {
    "norm_kind": "rms", "norm_eps": 1e-6, "gated": True, "activation": "silu", "ffn_bias": False, "tying": "none",
    "num_kv_heads": 2, "token_scale": "one", "decoder_layers": 4,
}  # fmt: skip


def from_cohere(ours: Transformer, theirs: Any) -> None:
    """transformers' Cohere2ForCausalLM: attention and feed-forward side by side behind one norm."""
    stack = ours.get_stack("decoder")
    put(stack.input.tokens, theirs.model.embed_tokens.weight)
    put(ours.output, theirs.lm_head.weight)
    for block, layer in zip(stack.blocks, theirs.model.layers, strict=True):
        own = layer.self_attn
        for residual in (block.attention_residual, block.feed_forward_residual):
            put_norm(residual.norm, layer.input_layernorm)
        put_linear(block.attention.qkv, own.q_proj, own.k_proj, own.v_proj)
        put_linear(block.attention.out, own.o_proj)
        put_linear(block.feed_forward.up, layer.mlp.gate_proj, layer.mlp.up_proj)
        put_linear(block.feed_forward.down, layer.mlp.down_proj)
    put_norm(stack.norm, theirs.model.norm)


PEERS: list[tuple[str, dict[str, Any], dict[str, Any], Callable[[Transformer, Any], None]]] = [
    ("MistralForCausalLM", {"sliding_window": 5, "num_key_value_heads": 2}, LLAMA, from_llama),
    ("SmolLM3ForCausalLM", {"num_key_value_heads": 2, "rope_theta": 100.0}, LLAMA, from_llama),
    (
        "Cohere2ForCausalLM",
        {"sliding_window": 5, "num_key_value_heads": 2, "logit_scale": 0.25},
        {**LLAMA, "norm_kind": "layer", "norm_eps": 1e-5, "norm_bias": False, "parallel": True, "output_scale": 0.25},
        from_cohere,
    ),
]


def shaken(model: Any) -> Any:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert theirs.std() > 0.1, "the peer's logits say nothing"
    torch.testing.assert_close(ours, theirs, atol=1e-5 * float(theirs.abs().max().clamp(min=1)), rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "config", "ours", "copy"), PEERS, ids=lambda value: value if isinstance(value, str) else ""
)
@torch.no_grad()
def test_converted_weights_give_the_same_logits(
    family: str, config: dict[str, Any], ours: dict[str, Any], copy: Callable[[Transformer, Any], None]
) -> None:
    kind = getattr(transformers, family)
    theirs = shaken(kind(kind.config_class(**SIZES, **config)))
    layout = read_position_table(theirs.config.to_dict())
    made = Transformer(core(kind="decoder", **ours, decoder=layout)).eval()
    copy(made, theirs)
    text = words(2, LENGTH)
    close(made.output(made.decode(TokenBatch(text))), theirs(input_ids=text).logits)


@torch.no_grad()
def test_mpnet_is_a_table_at_the_embedding_beside_a_bias_in_all_layers() -> None:
    config = transformers.MPNetConfig(**{**SIZES, "pad_token_id": 1}, max_position_embeddings=34)
    theirs = shaken(transformers.MPNetForMaskedLM(config))
    made = Transformer(
        core(
            kind="encoder", norm="post", token_scale="one", embedding_norm=True, attention_bias=True, activation="gelu",
            output_bias=True, output_transform=True, norm_eps=1e-12, encoder_layers=4,
            encoder=read_position_table(config.to_dict()),
        )
    ).eval()  # fmt: skip
    stack, model = made.get_stack("encoder"), theirs.mpnet
    put(stack.input.tokens, model.embeddings.word_embeddings.weight)
    put_norm(stack.input.norm, model.embeddings.LayerNorm)
    table, bias = stack.schemes.at_input.parts
    table.table_LP.copy_(model.embeddings.position_embeddings.weight[2:])
    bias.table_HN.copy_(model.encoder.relative_attention_bias.weight.T)
    for block, layer in zip(stack.blocks, model.encoder.layer, strict=True):
        own = layer.attention.attn
        put_linear(block.attention.qkv, own.q, own.k, own.v)
        put_linear(block.attention.out, own.o)
        put_norm(block.attention_residual.norm, layer.attention.LayerNorm)
        put_linear(block.feed_forward.up, layer.intermediate.dense)
        put_linear(block.feed_forward.down, layer.output.dense)
        put_norm(block.feed_forward_residual.norm, layer.output.LayerNorm)
    put_linear(made.output.transform.dense, theirs.lm_head.dense)
    put_norm(made.output.transform.norm, theirs.lm_head.layer_norm)
    put(made.output, theirs.lm_head.decoder.weight, bias=[theirs.lm_head.decoder.bias])
    text = words(2, LENGTH)
    close(made.output(made.encode(TokenBatch(text)).states_BTD), theirs(input_ids=text).logits)
