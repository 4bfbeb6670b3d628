"""Weights of other implementations copied into ours, so that the two can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from clockhands.model import Transformer

OWN = (
    *("attention.qkv", "attention.out", "attention_residual.norm"),
    *("feed_forward.up", "feed_forward.down", "feed_forward_residual.norm"),
)
CROSS = ("cross.q", "cross.kv", "cross.out", "cross_residual.norm")
"""The modules of our layers, in the order in which those of theirs are named below."""


@torch.no_grad()
def put(target: nn.Module, *weights: torch.Tensor, bias: list[torch.Tensor] | None = None) -> None:
    """Stack weights (and biases) into one linear layer or norm."""
    target.weight.copy_(torch.cat(weights))
    if bias is not None:
        target.bias.copy_(torch.cat(bias))


def put_modules(target: nn.Module, *sources: Any, order: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
    """Stack the weights and biases of modules, whose rows ``order`` puts in our order; Conv1D has them transposed."""
    order = order or (lambda rows: rows)
    weights = [source.weight.T if type(source).__name__ == "Conv1D" else source.weight for source in sources]
    has_bias = getattr(sources[0], "bias", None) is not None
    put(target, *map(order, weights), bias=[order(source.bias) for source in sources] if has_bias else None)


def put_layers(
    blocks: Any, layers: Any, own: Sequence[str], cross: Sequence[str] = (), heads: int | None = None
) -> None:
    """Copy layers whose modules have these names, several for one of ours with spaces between them; "": none.

    ``heads``: where the rows of a first projection are ordered head by head, each with its q, k and v.
    """

    def by_head(rows: torch.Tensor) -> torch.Tensor:
        return rows.unflatten(0, (heads or 1, 3, -1)).transpose(0, 1).flatten(0, 2)

    for block, layer in zip(blocks, layers, strict=True):
        for target, names in [*zip(OWN, own, strict=True), *zip(CROSS, cross, strict=False)]:
            if names:
                order = by_head if heads and target == OWN[0] else None
                put_modules(block.get_submodule(target), *map(layer.get_submodule, names.split()), order=order)


def from_torch(ours: Transformer, theirs: nn.Transformer) -> None:
    """torch.nn.Transformer; the embeddings stay ours."""
    assert ours.encoder is not None and ours.decoder is not None
    own = ("", "self_attn.out_proj", "norm1", "linear1", "linear2")
    put_layers(ours.encoder.blocks, theirs.encoder.layers, (*own, "norm2"))
    put_layers(
        ours.decoder.blocks, theirs.decoder.layers, (*own, "norm3"), ("", "", "multihead_attn.out_proj", "norm2")
    )
    for stack, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        for block, layer in zip(stack.blocks, other.layers, strict=True):
            put(block.attention.qkv, layer.self_attn.in_proj_weight, bias=[layer.self_attn.in_proj_bias])
            if block.cross is not None:
                inner, width = layer.multihead_attn, layer.multihead_attn.embed_dim
                put(block.cross.q, inner.in_proj_weight[:width], bias=[inner.in_proj_bias[:width]])
                put(block.cross.kv, inner.in_proj_weight[width:], bias=[inner.in_proj_bias[width:]])
        if stack.norm is not None:
            put_modules(stack.norm, other.norm)


def from_marian(ours: Transformer, theirs: Any) -> None:
    """transformers' MarianMTModel: post-norm, sinusoids in halves, everything tied."""
    assert ours.encoder is not None and ours.decoder is not None
    put(ours.output, theirs.model.shared.weight, bias=[theirs.final_logits_bias[0]])
    own = (
        *("self_attn.q_proj self_attn.k_proj self_attn.v_proj", "self_attn.out_proj", "self_attn_layer_norm"),
        *("fc1", "fc2", "final_layer_norm"),
    )
    cross = (
        *("encoder_attn.q_proj", "encoder_attn.k_proj encoder_attn.v_proj", "encoder_attn.out_proj"),
        "encoder_attn_layer_norm",
    )
    put_layers(ours.encoder.blocks, theirs.model.encoder.layers, own)
    put_layers(ours.decoder.blocks, theirs.model.decoder.layers, own, cross)


def from_gpt2(ours: Transformer, theirs: Any) -> None:
    """transformers' GPT2LMHeadModel: pre-norm, a learned table; its Conv1D weights are transposed."""
    assert ours.decoder is not None
    put(ours.output, theirs.transformer.wte.weight)
    with torch.no_grad():
        ours.decoder.schemes[0].table_LP.copy_(theirs.transformer.wpe.weight)
    own = ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
    put_layers(ours.decoder.blocks, theirs.transformer.h, own)
    put_modules(ours.decoder.norm, theirs.transformer.ln_f)


def from_neox(ours: Transformer, theirs: Any) -> None:
    """transformers' GPTNeoXForCausalLM: attention and feed-forward in parallel, partial RoPE."""
    assert ours.decoder is not None
    put(ours.decoder.input.tokens, theirs.gpt_neox.embed_in.weight)
    put(ours.output, theirs.get_output_embeddings().weight)
    own = (
        *("attention.query_key_value", "attention.dense", "input_layernorm"),
        *("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "post_attention_layernorm"),
    )
    put_layers(ours.decoder.blocks, theirs.gpt_neox.layers, own, heads=theirs.config.num_attention_heads)
    put_modules(ours.decoder.norm, theirs.gpt_neox.final_layer_norm)


def from_bloom(ours: Transformer, theirs: Any) -> None:
    """transformers' BloomForCausalLM: ALiBi, a norm after the embedding."""
    assert ours.decoder is not None and ours.decoder.input.norm is not None
    put(ours.output, theirs.transformer.word_embeddings.weight)
    put_modules(ours.decoder.input.norm, theirs.transformer.word_embeddings_layernorm)
    own = (
        *("self_attention.query_key_value", "self_attention.dense", "input_layernorm"),
        *("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "post_attention_layernorm"),
    )
    put_layers(ours.decoder.blocks, theirs.transformer.h, own, heads=theirs.config.n_head)
    put_modules(ours.decoder.norm, theirs.transformer.ln_f)


def from_mpt(ours: Transformer, theirs: Any) -> None:
    """transformers' MptForCausalLM: ALiBi, no bias anywhere."""
    assert ours.decoder is not None
    put(ours.output, theirs.transformer.wte.weight)
    own = ("attn.Wqkv", "attn.out_proj", "norm_1", "ffn.up_proj", "ffn.down_proj", "norm_2")
    put_layers(ours.decoder.blocks, theirs.transformer.blocks, own)
    put(ours.decoder.norm, theirs.transformer.norm_f.weight)


def from_t5(ours: Transformer, theirs: Any) -> None:
    """transformers' T5ForConditionalGeneration, its matrices tied or not: one table of buckets for each side."""
    assert ours.encoder is not None and ours.decoder is not None
    put(ours.output, theirs.lm_head.weight)
    own = tuple(f"layer.0.SelfAttention.{name}" for name in "qkvo")
    other = tuple(f"layer.1.EncDecAttention.{name}" for name in "qkvo")
    cross = (other[0], " ".join(other[1:3]), other[3], "layer.1.layer_norm")
    for stack, theirs_of, last in ((ours.encoder, theirs.encoder, 1), (ours.decoder, theirs.decoder, 2)):
        put(stack.input.tokens, theirs.shared.weight)
        table = theirs_of.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        with torch.no_grad():
            stack.schemes[0].table_HN.copy_(table.T)
        inside = (f"layer.{last}.DenseReluDense.wi", f"layer.{last}.DenseReluDense.wo", f"layer.{last}.layer_norm")
        names = (" ".join(own[:3]), own[3], "layer.0.layer_norm", *inside)
        put_layers(stack.blocks, theirs_of.block, names, cross if last == 2 else ())
        put_modules(stack.norm, theirs_of.final_layer_norm)


def from_bert(ours: Transformer, embeddings: Any, layers: Any, head: Any, projections: str) -> None:
    """What BERT's descendants share: post-norm layers over a normed embedding, and the head of a masked model.

    A kind of token (BERT's type 0) that every word has is added to its embedding, so that the output's matrix, which
    has it not, is a matrix of its own.
    """
    assert ours.encoder is not None and ours.encoder.input.norm is not None and ours.output.transform is not None
    words, kinds = embeddings.word_embeddings.weight, embeddings.token_type_embeddings
    put(ours.output, words)
    put(ours.encoder.input.tokens, words if kinds is None else words + kinds.weight[0])
    put_modules(ours.encoder.input.norm, embeddings.LayerNorm)
    own = (
        *(projections, "attention.output.dense", "attention.output.LayerNorm"),
        *("intermediate.dense", "output.dense", "output.LayerNorm"),
    )
    put_layers(ours.encoder.blocks, layers, own)
    put_modules(ours.output.transform.dense, head.dense)
    put_modules(ours.output.transform.norm, head.LayerNorm)


def from_roformer(ours: Transformer, theirs: Any) -> None:
    """transformers' RoFormerForMaskedLM: BERT with neighbouring channels turned."""
    model, head = theirs.roformer, theirs.cls.predictions
    names = "attention.self.query attention.self.key attention.self.value"
    from_bert(ours, model.embeddings, model.encoder.layer, head.transform, names)
    with torch.no_grad():
        ours.output.bias.copy_(head.decoder.bias)


def from_deberta(ours: Transformer, theirs: Any) -> None:
    """transformers' DebertaV2ForMaskedLM: one table of positions for all layers, normed, projected by W_q and W_k.

    Each of our layers has a table and two projections of its own: they get copies, the norm worked in.
    """
    assert ours.encoder is not None
    model, head = theirs.deberta, theirs.lm_predictions.lm_head
    names = "attention.self.query_proj attention.self.key_proj attention.self.value_proj"
    from_bert(ours, model.embeddings, model.encoder.layer, head, names)
    with torch.no_grad():
        ours.output.bias.copy_(head.bias)
        table_RD = model.encoder.get_rel_embedding()
        for scheme in ours.encoder.schemes:
            scheme.table_RD.copy_(table_RD)
    for scheme, layer in zip(ours.encoder.schemes, model.encoder.layer, strict=True):
        own = layer.attention.self
        put_modules(scheme.to_key, own.key_proj if own.share_att_key else own.pos_key_proj)
        put_modules(scheme.to_query, own.query_proj if own.share_att_key else own.pos_query_proj)


def without_yarn(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return transformers' ``rope_parameters`` with the rule taken away where it stands, and nothing else changed.

    If the model does not read the table, because its kinds of layer have others, this makes no difference to it.
    """
    table = config["rope_parameters"]
    by_kind = {kind: {**own, "rope_type": "default"} for kind, own in table.items() if isinstance(own, dict)}
    return {"rope_parameters": by_kind or {**table, "rope_type": "default"}}
