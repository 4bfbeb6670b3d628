"""Weights of other implementations copied into ours, so that the two can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from clockhands.model import Transformer


@torch.no_grad()
def put(target: nn.Module, *weights: torch.Tensor, bias: list[torch.Tensor] | None = None) -> None:
    """Stack weights (and biases) into one linear layer or norm."""
    target.weight.copy_(torch.cat(weights))
    if bias is not None:
        target.bias.copy_(torch.cat(bias))


def put_linear(target: nn.Module, *sources: nn.Linear) -> None:
    bias = None if sources[0].bias is None else [source.bias for source in sources]
    put(target, *(source.weight for source in sources), bias=bias)


def put_norm(target: nn.Module, source: Any) -> None:
    put(target, source.weight, bias=None if getattr(source, "bias", None) is None else [source.bias])


def from_torch(ours: Transformer, theirs: nn.Transformer) -> None:
    """torch.nn.Transformer; the embeddings stay ours."""
    assert ours.encoder is not None and ours.decoder is not None
    for stack, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        for block, layer in zip(stack.blocks, other.layers, strict=True):
            put(block.attention.qkv, layer.self_attn.in_proj_weight, bias=[layer.self_attn.in_proj_bias])
            put_linear(block.attention.out, layer.self_attn.out_proj)
            norms = [layer.norm1, layer.norm2]
            put_norm(block.attention_residual.norm, norms[0])
            if block.cross is not None:
                inner = layer.multihead_attn
                width = inner.embed_dim
                put(block.cross.q, inner.in_proj_weight[:width], bias=[inner.in_proj_bias[:width]])
                put(block.cross.kv, inner.in_proj_weight[width:], bias=[inner.in_proj_bias[width:]])
                put_linear(block.cross.out, inner.out_proj)
                put_norm(block.cross_residual.norm, norms[1])
                norms = [layer.norm1, layer.norm3]
            put_norm(block.feed_forward_residual.norm, norms[1])
            put_linear(block.feed_forward.up, layer.linear1)
            put_linear(block.feed_forward.down, layer.linear2)
        if stack.norm is not None:
            put_norm(stack.norm, other.norm)


def from_marian(ours: Transformer, theirs: Any) -> None:
    """transformers' MarianMTModel: post-norm, sinusoids in halves, everything tied."""
    assert ours.encoder is not None and ours.decoder is not None
    put(ours.output, theirs.model.shared.weight, bias=[theirs.final_logits_bias[0]])
    for stack, other in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
        for block, layer in zip(stack.blocks, other.layers, strict=True):
            own = layer.self_attn
            put_linear(block.attention.qkv, own.q_proj, own.k_proj, own.v_proj)
            put_linear(block.attention.out, own.out_proj)
            put_norm(block.attention_residual.norm, layer.self_attn_layer_norm)
            if block.cross is not None:
                put_linear(block.cross.q, layer.encoder_attn.q_proj)
                put_linear(block.cross.kv, layer.encoder_attn.k_proj, layer.encoder_attn.v_proj)
                put_linear(block.cross.out, layer.encoder_attn.out_proj)
                put_norm(block.cross_residual.norm, layer.encoder_attn_layer_norm)
            put_linear(block.feed_forward.up, layer.fc1)
            put_linear(block.feed_forward.down, layer.fc2)
            put_norm(block.feed_forward_residual.norm, layer.final_layer_norm)


def from_gpt2(ours: Transformer, theirs: Any) -> None:
    """transformers' GPT2LMHeadModel: pre-norm, a learned table; its Conv1D weights are transposed."""
    assert ours.decoder is not None
    put(ours.output, theirs.transformer.wte.weight)
    with torch.no_grad():
        ours.decoder.schemes[0].table_LP.copy_(theirs.transformer.wpe.weight)
    for block, layer in zip(ours.decoder.blocks, theirs.transformer.h, strict=True):
        put_norm(block.attention_residual.norm, layer.ln_1)
        put(block.attention.qkv, layer.attn.c_attn.weight.T, bias=[layer.attn.c_attn.bias])
        put(block.attention.out, layer.attn.c_proj.weight.T, bias=[layer.attn.c_proj.bias])
        put_norm(block.feed_forward_residual.norm, layer.ln_2)
        put(block.feed_forward.up, layer.mlp.c_fc.weight.T, bias=[layer.mlp.c_fc.bias])
        put(block.feed_forward.down, layer.mlp.c_proj.weight.T, bias=[layer.mlp.c_proj.bias])
    put_norm(ours.decoder.norm, theirs.transformer.ln_f)


def from_llama(ours: Transformer, theirs: Any) -> None:
    """transformers' LlamaForCausalLM: pre-norm with root mean squares, gated, RoPE in halves, grouped keys."""
    assert ours.decoder is not None
    put(ours.decoder.input.tokens, theirs.model.embed_tokens.weight)
    put(ours.output, theirs.lm_head.weight)
    for block, layer in zip(ours.decoder.blocks, theirs.model.layers, strict=True):
        own = layer.self_attn
        put_norm(block.attention_residual.norm, layer.input_layernorm)
        put_linear(block.attention.qkv, own.q_proj, own.k_proj, own.v_proj)
        put_linear(block.attention.out, own.o_proj)
        put_norm(block.feed_forward_residual.norm, layer.post_attention_layernorm)
        put_linear(block.feed_forward.up, layer.mlp.gate_proj, layer.mlp.up_proj)
        put_linear(block.feed_forward.down, layer.mlp.down_proj)
    put_norm(ours.decoder.norm, theirs.model.norm)


def by_head(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """From rows ordered head by head, each with its q, k and v, to all queries, all keys, all values."""
    return weight.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)


def from_neox(ours: Transformer, theirs: Any) -> None:
    """transformers' GPTNeoXForCausalLM: attention and feed-forward in parallel, partial RoPE."""
    assert ours.decoder is not None
    put(ours.decoder.input.tokens, theirs.gpt_neox.embed_in.weight)
    put(ours.output, theirs.get_output_embeddings().weight)
    heads = theirs.config.num_attention_heads
    for block, layer in zip(ours.decoder.blocks, theirs.gpt_neox.layers, strict=True):
        own = layer.attention
        put_norm(block.attention_residual.norm, layer.input_layernorm)
        put_norm(block.feed_forward_residual.norm, layer.post_attention_layernorm)
        fused = own.query_key_value
        put(block.attention.qkv, by_head(fused.weight, heads), bias=[by_head(fused.bias, heads)])
        put_linear(block.attention.out, own.dense)
        put_linear(block.feed_forward.up, layer.mlp.dense_h_to_4h)
        put_linear(block.feed_forward.down, layer.mlp.dense_4h_to_h)
    put_norm(ours.decoder.norm, theirs.gpt_neox.final_layer_norm)


def from_bloom(ours: Transformer, theirs: Any) -> None:
    """transformers' BloomForCausalLM: ALiBi, a norm after the embedding."""
    assert ours.decoder is not None and ours.decoder.input.norm is not None
    put(ours.output, theirs.transformer.word_embeddings.weight)
    put_norm(ours.decoder.input.norm, theirs.transformer.word_embeddings_layernorm)
    heads = theirs.config.n_head
    for block, layer in zip(ours.decoder.blocks, theirs.transformer.h, strict=True):
        fused = layer.self_attention.query_key_value
        put_norm(block.attention_residual.norm, layer.input_layernorm)
        put_norm(block.feed_forward_residual.norm, layer.post_attention_layernorm)
        put(block.attention.qkv, by_head(fused.weight, heads), bias=[by_head(fused.bias, heads)])
        put_linear(block.attention.out, layer.self_attention.dense)
        put_linear(block.feed_forward.up, layer.mlp.dense_h_to_4h)
        put_linear(block.feed_forward.down, layer.mlp.dense_4h_to_h)
    put_norm(ours.decoder.norm, theirs.transformer.ln_f)


def from_gemma(ours: Transformer, theirs: Any) -> None:
    """transformers' GemmaForCausalLM: as Llama, tied, and norms that store their weight minus one."""
    from_llama(ours, theirs)
    assert ours.decoder is not None
    with torch.no_grad():
        for module in ours.decoder.modules():
            if isinstance(module, nn.RMSNorm):
                module.weight += 1


def from_mpt(ours: Transformer, theirs: Any) -> None:
    """transformers' MptForCausalLM: ALiBi, no bias anywhere."""
    assert ours.decoder is not None
    put(ours.output, theirs.transformer.wte.weight)
    for block, layer in zip(ours.decoder.blocks, theirs.transformer.blocks, strict=True):
        put_norm(block.attention_residual.norm, layer.norm_1)
        put_linear(block.attention.qkv, layer.attn.Wqkv)
        put_linear(block.attention.out, layer.attn.out_proj)
        put_norm(block.feed_forward_residual.norm, layer.norm_2)
        put_linear(block.feed_forward.up, layer.ffn.up_proj)
        put_linear(block.feed_forward.down, layer.ffn.down_proj)
    put(ours.decoder.norm, theirs.transformer.norm_f.weight)


def from_t5(ours: Transformer, theirs: Any) -> None:
    """transformers' T5ForConditionalGeneration, its matrices tied or not: one table of buckets for each side."""
    assert ours.encoder is not None and ours.decoder is not None
    put(ours.output, theirs.lm_head.weight)
    for stack, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        put(stack.input.tokens, theirs.shared.weight)
        table = other.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        with torch.no_grad():
            stack.schemes[0].table_HN.copy_(table.T)
        for block, layer in zip(stack.blocks, other.block, strict=True):
            own = layer.layer[0].SelfAttention
            put_linear(block.attention.qkv, own.q, own.k, own.v)
            put_linear(block.attention.out, own.o)
            put_norm(block.attention_residual.norm, layer.layer[0].layer_norm)
            if block.cross is not None:
                inner = layer.layer[1].EncDecAttention
                put_linear(block.cross.q, inner.q)
                put_linear(block.cross.kv, inner.k, inner.v)
                put_linear(block.cross.out, inner.o)
                put_norm(block.cross_residual.norm, layer.layer[1].layer_norm)
            put_linear(block.feed_forward.up, layer.layer[-1].DenseReluDense.wi)
            put_linear(block.feed_forward.down, layer.layer[-1].DenseReluDense.wo)
            put_norm(block.feed_forward_residual.norm, layer.layer[-1].layer_norm)
        put_norm(stack.norm, other.final_layer_norm)


def from_bert(ours: Transformer, embeddings: Any, layers: Any, head: Any) -> None:
    """What BERT's descendants share: post-norm layers over a normed embedding, and the head of a masked model.

    A kind of token (BERT's type 0) that every word has is added to its embedding, so that the output's matrix, which
    has it not, is a matrix of its own.
    """
    assert ours.encoder is not None and ours.encoder.input.norm is not None and ours.output.transform is not None
    words, kinds = embeddings.word_embeddings.weight, embeddings.token_type_embeddings
    put(ours.output, words)
    put(ours.encoder.input.tokens, words if kinds is None else words + kinds.weight[0])
    put_norm(ours.encoder.input.norm, embeddings.LayerNorm)
    for block, layer in zip(ours.encoder.blocks, layers, strict=True):
        put_linear(block.attention.out, layer.attention.output.dense)
        put_norm(block.attention_residual.norm, layer.attention.output.LayerNorm)
        put_linear(block.feed_forward.up, layer.intermediate.dense)
        put_linear(block.feed_forward.down, layer.output.dense)
        put_norm(block.feed_forward_residual.norm, layer.output.LayerNorm)
    put_linear(ours.output.transform.dense, head.dense)
    put_norm(ours.output.transform.norm, head.LayerNorm)


def from_roformer(ours: Transformer, theirs: Any) -> None:
    """transformers' RoFormerForMaskedLM: BERT with neighbouring channels turned."""
    assert ours.encoder is not None
    layers = theirs.roformer.encoder.layer
    from_bert(ours, theirs.roformer.embeddings, layers, theirs.cls.predictions.transform)
    with torch.no_grad():
        ours.output.bias.copy_(theirs.cls.predictions.decoder.bias)
    for block, layer in zip(ours.encoder.blocks, layers, strict=True):
        own = layer.attention.self
        put_linear(block.attention.qkv, own.query, own.key, own.value)


def from_deberta(ours: Transformer, theirs: Any) -> None:
    """transformers' DebertaV2ForMaskedLM: one table of positions for all layers, normed, projected by W_q and W_k.

    Each of our layers has a table and two projections of its own: they get copies, the norm worked in.
    """
    assert ours.encoder is not None
    model, head = theirs.deberta, theirs.lm_predictions.lm_head
    from_bert(ours, model.embeddings, model.encoder.layer, head)
    with torch.no_grad():
        ours.output.bias.copy_(head.bias)
        table_RD = model.encoder.get_rel_embedding()
        for scheme in ours.encoder.schemes:
            scheme.table_RD.copy_(table_RD)
    for block, scheme, layer in zip(ours.encoder.blocks, ours.encoder.schemes, model.encoder.layer, strict=True):
        own = layer.attention.self
        put_linear(block.attention.qkv, own.query_proj, own.key_proj, own.value_proj)
        put_linear(scheme.to_key, own.key_proj if own.share_att_key else own.pos_key_proj)
        put_linear(scheme.to_query, own.query_proj if own.share_att_key else own.pos_query_proj)


def without_yarn(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return transformers' ``rope_parameters`` with the rule taken away where it stands, and nothing else changed.

    If the model does not read the table, because its kinds of layer have others, this makes no difference to it.
    """
    table = config["rope_parameters"]
    by_kind = {kind: {**own, "rope_type": "default"} for kind, own in table.items() if isinstance(own, dict)}
    return {"rope_parameters": by_kind or {**table, "rope_type": "default"}}
