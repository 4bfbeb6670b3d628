"""Pair the parameters of a model of this project with those of a model of transformers that are the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from clockhands.model.attention import LatentAttention
from clockhands.model.block import Block, ResidualConnection
from clockhands.model.config import TransformerConfig
from clockhands.model.layers import ExpertMixture, FeedForward
from clockhands.model.transformer import Transformer
from clockhands.schemes import Composition, Learned, Sinks, T5Bias
from clockhands.shapes import Tensor

TABLE_START = 2
"""The first row of MPNet's table that stands for a position; of those before it, one stands for padding."""


class _ParameterPair(NamedTuple):
    """A parameter of ours, and those of theirs that it consists of, row after row; ``shift`` is added to theirs."""

    own: Tensor
    parts: list[Tensor]
    shift: float = 0.0


def pair_parameters(ours: Transformer, theirs: Any) -> Iterator[_ParameterPair]:
    """Yield each parameter of ours with those of theirs that it is made of."""
    model_type = theirs.config.model_type
    if model_type == "mpnet":
        yield from _pair_mpnet(ours, theirs)
    elif model_type == "gpt2":
        yield from _pair_gpt2(ours, theirs)
    elif model_type == "modernbert":
        yield from _pair_modernbert(ours, theirs)
    else:
        yield from _pair_decoder(ours, theirs, model_type)


def _pair_decoder(ours: Transformer, theirs: Any, model_type: str) -> Iterator[_ParameterPair]:
    """Yield the pairs of a decoder whose modules are named as in Llama."""
    stack: Any = ours.get_stack("decoder")
    # Gemma's norms multiply by 1 + w.
    shift = 1.0 if model_type == "gemma3_text" else 0.0
    yield _ParameterPair(stack.input.tokens.weight, [theirs.model.embed_tokens.weight])
    yield _ParameterPair(ours.output.weight, [theirs.lm_head.weight])
    yield from _pair_modules(stack.norm, theirs.model.norm, shift=shift)
    for index, (block, layer) in enumerate(zip(stack.blocks, theirs.model.layers, strict=True)):
        yield from _pair_norms(block, layer, ours.config, shift)
        yield from _pair_attention(block.attention, layer.self_attn, shift)
        mlp = layer.feed_forward if hasattr(layer, "feed_forward") else layer.mlp
        if isinstance(block.feed_forward, ExpertMixture):
            yield from _pair_experts(block.feed_forward, mlp, model_type)
        else:
            yield from _pair_gated(block.feed_forward, mlp)
        if model_type == "gpt_oss":
            yield _ParameterPair(_find_part(stack.schemes.get_scheme(index), Sinks).sink_H, [layer.self_attn.sinks])


def _pair_gpt2(ours: Transformer, theirs: Any) -> Iterator[_ParameterPair]:
    """Yield the pairs of GPT-2, whose matrices in the layers are [inputs, columns]."""
    stack: Any = ours.get_stack("decoder")
    yield _ParameterPair(stack.input.tokens.weight, [theirs.transformer.wte.weight])
    yield _ParameterPair(_find_part(stack.schemes.at_input, Learned).table_LP, [theirs.transformer.wpe.weight])
    yield _ParameterPair(ours.output.weight, [theirs.lm_head.weight])
    yield from _pair_modules(stack.norm, theirs.transformer.ln_f)
    for block, layer in zip(stack.blocks, theirs.transformer.h, strict=True):
        yield from _pair_modules(block.attention_residual.norm, layer.ln_1)
        yield from _pair_modules(block.feed_forward_residual.norm, layer.ln_2)
        for own, module in (
            (block.attention.qkv, layer.attn.c_attn), (block.attention.out, layer.attn.c_proj),
            (block.feed_forward.up, layer.mlp.c_fc), (block.feed_forward.down, layer.mlp.c_proj),
        ):  # fmt: skip
            yield _ParameterPair(own.weight, [module.weight.T])
            yield _ParameterPair(own.bias, [module.bias])


def _find_part(scheme: Any, kind: type) -> Any:
    """Return the part of a composition, or the scheme itself, that is of this class."""
    return next(part for part in (scheme.parts if isinstance(scheme, Composition) else (scheme,)) if type(part) is kind)


def _pair_norms(block: Any, layer: Any, config: TransformerConfig, shift: float) -> Iterator[_ParameterPair]:
    """Yield the norms of the sublayers: of their inputs, of their outputs, or of both."""
    first: ResidualConnection = block.attention_residual
    second: ResidualConnection = block.feed_forward_residual
    if config.norm != "output":
        # Llama calls the norm before the feed-forward layer "post_attention_layernorm": attention precedes it.
        feed_forward_norm = "pre_feedforward_layernorm" if config.norm == "sandwich" else "post_attention_layernorm"
        yield from _pair_modules(first.norm, layer.input_layernorm, shift=shift)
        yield from _pair_modules(
            second.norm, layer.input_layernorm if config.parallel else getattr(layer, feed_forward_norm), shift=shift
        )
    if first.output_norm is not None:
        yield from _pair_modules(first.output_norm, layer.post_attention_layernorm, shift=shift)
        yield from _pair_modules(second.output_norm, layer.post_feedforward_layernorm, shift=shift)


def _pair_attention(own: Any, theirs: Any, shift: float) -> Iterator[_ParameterPair]:
    """Yield the projections of an attention and the norms of its queries and keys."""
    yield from _pair_modules(own.out, theirs.o_proj)
    if isinstance(own, LatentAttention):
        yield from _pair_latent_attention(own, theirs)
        return
    yield from _pair_modules(own.qkv, theirs.q_proj, theirs.k_proj, theirs.v_proj)
    if own.q_norm is not None:
        yield from _pair_modules(own.q_norm, theirs.q_norm, shift=shift)
        yield from _pair_modules(own.k_norm, theirs.k_norm, shift=shift)


def _pair_latent_attention(own: LatentAttention, theirs: Any) -> Iterator[_ParameterPair]:
    """Yield the projections of an attention with compressed keys and values; DeepSeek has the rotated channels last."""
    if own.q_down is not None:
        yield from _pair_modules(own.q_down, theirs.q_a_proj)
        yield from _pair_modules(own.q_latent_norm, theirs.q_a_layernorm)
    heads = (theirs.q_proj if own.q_down is None else theirs.q_b_proj).weight.split(own.head_dim)
    plain = own.head_dim - own.shared_key_dim
    yield _ParameterPair(own.q_up.weight, [rows for head in heads for rows in (head[plain:], head[:plain])])
    yield from _pair_modules(own.kv_down, theirs.kv_a_proj_with_mqa)
    yield from _pair_modules(own.kv_latent_norm, theirs.kv_a_layernorm)
    yield from _pair_modules(own.kv_up, theirs.kv_b_proj)


def _pair_gated(own: FeedForward, theirs: Any) -> Iterator[_ParameterPair]:
    """Yield the matrices of a gated feed-forward network."""
    yield from _pair_modules(own.up, theirs.gate_proj, theirs.up_proj)
    yield from _pair_modules(own.down, theirs.down_proj)


def _pair_experts(own: ExpertMixture, theirs: Any, model_type: str) -> Iterator[_ParameterPair]:
    """Yield the router and the networks of a mixture of experts."""
    router = theirs.gate if model_type == "deepseek_v3" else theirs.router
    yield from _pair_modules(own.router, router)
    if own.correction_E is not None:
        yield _ParameterPair(own.correction_E, [router.e_score_correction_bias])
    if own.shared is not None:
        yield from _pair_gated(
            own.shared, theirs.shared_experts if model_type == "deepseek_v3" else theirs.shared_expert
        )
    stored = theirs.experts
    expert: Any
    for number, expert in enumerate(own.experts):
        up, down = stored.gate_up_proj[number], stored.down_proj[number]
        if model_type == "gpt_oss":
            bias = stored.gate_up_proj_bias[number]
            # Rows of gates and of values alternate there.
            yield _ParameterPair(expert.up.weight, [up.T[0::2], up.T[1::2]])
            yield _ParameterPair(expert.up.bias, [bias[0::2], bias[1::2]])
            yield _ParameterPair(expert.down.weight, [down.T])
            yield _ParameterPair(expert.down.bias, [stored.down_proj_bias[number]])
        else:
            transposed = model_type == "llama4_text"
            yield _ParameterPair(expert.up.weight, [up.T if transposed else up])
            yield _ParameterPair(expert.down.weight, [down.T if transposed else down])


def _pair_modernbert(ours: Transformer, theirs: Any) -> Iterator[_ParameterPair]:
    """Yield the pairs of ModernBERT, whose first layer has no norm before attention."""
    stack: Any = ours.get_stack("encoder")
    yield _ParameterPair(stack.input.tokens.weight, [theirs.model.embeddings.tok_embeddings.weight])
    yield from _pair_modules(stack.input.norm, theirs.model.embeddings.norm)
    yield from _pair_modules(stack.norm, theirs.model.final_norm)
    block: Block
    for block, layer in zip(stack.blocks, theirs.model.layers, strict=True):
        own: Any = block
        if not isinstance(layer.attn_norm, torch.nn.Identity):
            yield from _pair_modules(own.attention_residual.norm, layer.attn_norm)
        yield from _pair_modules(own.attention.qkv, layer.attn.Wqkv)
        yield from _pair_modules(own.attention.out, layer.attn.Wo)
        yield from _pair_modules(own.feed_forward_residual.norm, layer.mlp_norm)
        yield from _pair_modules(own.feed_forward.up, layer.mlp.Wi)
        yield from _pair_modules(own.feed_forward.down, layer.mlp.Wo)
    yield from _pair_head(ours, theirs.head.dense, theirs.head.norm, theirs.decoder)


def _pair_mpnet(ours: Transformer, theirs: Any) -> Iterator[_ParameterPair]:
    """Yield the pairs of MPNet, with its table of positions and its biases."""
    stack: Any = ours.get_stack("encoder")
    embeddings, encoder = theirs.mpnet.embeddings, theirs.mpnet.encoder
    yield _ParameterPair(stack.input.tokens.weight, [embeddings.word_embeddings.weight])
    yield from _pair_modules(stack.input.norm, embeddings.LayerNorm)
    table = _find_part(stack.schemes.at_input, Learned).table_LP
    yield _ParameterPair(table, [embeddings.position_embeddings.weight[TABLE_START:]])
    yield _ParameterPair(
        _find_part(stack.schemes.at_input, T5Bias).table_HN, [encoder.relative_attention_bias.weight.T]
    )
    for block, layer in zip(stack.blocks, encoder.layer, strict=True):
        attention = layer.attention.attn
        yield from _pair_modules(block.attention.qkv, attention.q, attention.k, attention.v)
        yield from _pair_modules(block.attention.out, attention.o)
        yield from _pair_modules(block.attention_residual.norm, layer.attention.LayerNorm)
        yield from _pair_modules(block.feed_forward.up, layer.intermediate.dense)
        yield from _pair_modules(block.feed_forward.down, layer.output.dense)
        yield from _pair_modules(block.feed_forward_residual.norm, layer.output.LayerNorm)
    yield from _pair_head(ours, theirs.lm_head.dense, theirs.lm_head.layer_norm, theirs.lm_head.decoder)


def _pair_head(ours: Transformer, dense: Any, norm: Any, output: Any) -> Iterator[_ParameterPair]:
    """Yield the output layer of an encoder, and the layer before it."""
    transform: Any = ours.output.transform
    yield from _pair_modules(transform.dense, dense)
    yield from _pair_modules(transform.norm, norm)
    yield from _pair_modules(ours.output, output)


def _pair_modules(own: Any, *theirs: Any, shift: float = 0.0) -> Iterator[_ParameterPair]:
    """Yield the weight of a module of ours with those of one or several of theirs, and the bias if there is one.

    Where only ours has a bias, it is paired with zeros: so it is for a ModernBERT without ``classifier_bias``. Models
    that are made from ours have every bias of ours, since their configurations are compared (``check_fields``).
    """
    yield _ParameterPair(own.weight, [module.weight for module in theirs], shift)
    if getattr(own, "bias", None) is not None:
        biases = [getattr(module, "bias", None) for module in theirs]
        absent = [torch.zeros(len(module.weight), device=own.weight.device) for module in theirs]
        yield _ParameterPair(
            own.bias, [zeros if bias is None else bias for bias, zeros in zip(biases, absent, strict=True)]
        )
