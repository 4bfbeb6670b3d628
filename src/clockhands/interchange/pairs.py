"""Pair the parameters of a model of this project with those of a model of transformers that are the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import torch

from clockhands.interchange.fields import ENCODERS
from clockhands.model.layers import ExpertMixture
from clockhands.model.transformer import Transformer
from clockhands.schemes import Composition, Learned, Sinks, T5Bias
from clockhands.shapes import Tensor

TABLE_START = 2
"""The first row of MPNet's table that stands for a position; of those before it, one stands for padding."""


Names: TypeAlias = tuple[str, dict[str, str], dict[str, str]]
"""Of an architecture: the list of its layers, and its modules by ours with the same numbers, outside of layers and in.

Ours may consist of several of theirs, row after row (``a + b``), and theirs may have one of several names (``a | b``).
What ours does not have is left out.
"""
_LLAMA: Names = ("model.layers", {
    "stack.input.tokens": "model.embed_tokens", "stack.norm": "model.norm", "output": "lm_head",
}, {
    "attention_residual.norm": "input_layernorm",
    # Llama's norm before the feed-forward layer comes after attention; a parallel layer has one norm for both.
    "feed_forward_residual.norm": "pre_feedforward_layernorm | post_attention_layernorm | input_layernorm",
    "attention_residual.output_norm": "post_attention_layernorm",
    "feed_forward_residual.output_norm": "post_feedforward_layernorm",
    "attention.qkv": "self_attn.q_proj + self_attn.k_proj + self_attn.v_proj", "attention.out": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm",
    "attention.q_down": "self_attn.q_a_proj", "attention.q_latent_norm": "self_attn.q_a_layernorm",
    "attention.kv_down": "self_attn.kv_a_proj_with_mqa", "attention.kv_latent_norm": "self_attn.kv_a_layernorm",
    "attention.kv_up": "self_attn.kv_b_proj",
    "feed_forward.up": "mlp.gate_proj + mlp.up_proj | feed_forward.gate_proj + feed_forward.up_proj",
    "feed_forward.down": "mlp.down_proj | feed_forward.down_proj",
    "feed_forward.router": "mlp.gate | mlp.router | feed_forward.router",
    "feed_forward.shared.up": "mlp.shared_experts.gate_proj + mlp.shared_experts.up_proj"
    " | feed_forward.shared_expert.gate_proj + feed_forward.shared_expert.up_proj",
    "feed_forward.shared.down": "mlp.shared_experts.down_proj | feed_forward.shared_expert.down_proj",
})  # fmt: skip
_OTHERS: dict[str, Names] = {
    "gpt2": ("transformer.h", {
        "stack.input.tokens": "transformer.wte", "stack.norm": "transformer.ln_f", "output": "lm_head",
    }, {
        "attention_residual.norm": "ln_1", "attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj",
        "feed_forward_residual.norm": "ln_2", "feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj",
    }),
    "modernbert": ("model.layers", {
        "stack.input.tokens": "model.embeddings.tok_embeddings", "stack.input.norm": "model.embeddings.norm",
        "stack.norm": "model.final_norm", "output.transform.dense": "head.dense", "output.transform.norm": "head.norm",
        "output": "decoder",
    }, {
        "attention_residual.norm": "attn_norm", "attention.qkv": "attn.Wqkv", "attention.out": "attn.Wo",
        "feed_forward_residual.norm": "mlp_norm", "feed_forward.up": "mlp.Wi", "feed_forward.down": "mlp.Wo",
    }),
    "mpnet": ("mpnet.encoder.layer", {
        "stack.input.tokens": "mpnet.embeddings.word_embeddings", "stack.input.norm": "mpnet.embeddings.LayerNorm",
        "output.transform.dense": "lm_head.dense", "output.transform.norm": "lm_head.layer_norm",
        "output": "lm_head.decoder",
    }, {
        "attention.qkv": "attention.attn.q + attention.attn.k + attention.attn.v", "attention.out": "attention.attn.o",
        "attention_residual.norm": "attention.LayerNorm", "feed_forward.up": "intermediate.dense",
        "feed_forward.down": "output.dense", "feed_forward_residual.norm": "output.LayerNorm",
    }),
}  # fmt: skip


class _ParameterPair(NamedTuple):
    """A parameter of ours, and those of theirs that it consists of, row after row; ``shift`` is added to theirs."""

    own: Tensor
    parts: list[Tensor]
    shift: float = 0.0


def pair_parameters(ours: Transformer, theirs: Any) -> Iterator[_ParameterPair]:
    """Yield each parameter of ours with those of theirs that it is made of."""
    model_type = theirs.config.model_type
    layers, outside, inside = _OTHERS.get(model_type, _LLAMA)
    stack: Any = ours.get_stack("encoder" if model_type in ENCODERS else "decoder")
    # Gemma's norms multiply by 1 + w.
    shift = 1.0 if model_type == "gemma3_text" else 0.0
    for path, other in outside.items():
        owner = stack if path.startswith("stack.") else ours
        yield from _pair_modules(owner, path.removeprefix("stack."), theirs, other, shift)
    for index, (block, layer) in enumerate(zip(stack.blocks, theirs.get_submodule(layers), strict=True)):
        for path, other in inside.items():
            yield from _pair_modules(block, path, layer, other, shift)
        if getattr(block.attention, "q_up", None) is not None:
            # DeepSeek has the channels of a head that rotate last, ours first.
            own, attention = block.attention, layer.self_attn
            heads = (attention.q_proj if own.q_down is None else attention.q_b_proj).weight.split(own.head_dim)
            plain = own.head_dim - own.shared_key_dim
            yield _ParameterPair(own.q_up.weight, [rows for head in heads for rows in (head[plain:], head[:plain])])
        if isinstance(block.feed_forward, ExpertMixture):
            yield from _pair_experts(block.feed_forward, getattr(layer, "mlp", None) or layer.feed_forward, model_type)
        if model_type == "gpt_oss":
            yield _ParameterPair(_find_part(stack.schemes.get_scheme(index), Sinks).sink_H, [layer.self_attn.sinks])
    if model_type == "gpt2":
        table = _find_part(stack.schemes.at_input, Learned).table_LP
        yield _ParameterPair(table, [theirs.transformer.wpe.weight])
    if model_type == "mpnet":
        table, buckets = (_find_part(stack.schemes.at_input, kind) for kind in (Learned, T5Bias))
        yield _ParameterPair(table.table_LP, [theirs.mpnet.embeddings.position_embeddings.weight[TABLE_START:]])
        yield _ParameterPair(buckets.table_HN, [theirs.mpnet.encoder.relative_attention_bias.weight.T])


def _find_part(scheme: Any, kind: type) -> Any:
    """Return the part of a composition, or the scheme itself, that is of this class."""
    return next(part for part in (scheme.parts if isinstance(scheme, Composition) else (scheme,)) if type(part) is kind)


def _find_module(owner: Any, path: str) -> Any:
    """Return the module at a path; None where there is none, or one without weights."""
    for name in path.strip().split("."):
        owner = getattr(owner, name, None)
    return owner if hasattr(owner, "weight") else None


def _pair_modules(ours: Any, path: str, theirs: Any, names: str, shift: float) -> Iterator[_ParameterPair]:
    """Yield the weight of a module of ours with those of one or several of theirs, and the bias if there is one."""
    own = _find_module(ours, path)
    if own is None:
        return
    choices = [[_find_module(theirs, name) for name in choice.split("+")] for choice in names.split("|")]
    modules = next(choice for choice in choices if None not in choice)
    # The matrices in GPT-2's layers are [inputs, columns].
    weights = [module.weight.T if type(module).__name__ == "Conv1D" else module.weight for module in modules]
    yield _ParameterPair(own.weight, weights, shift if path.endswith("norm") else 0.0)
    if getattr(own, "bias", None) is not None:
        biases: list[Tensor] = []
        for module, weight in zip(modules, weights, strict=True):
            bias = getattr(module, "bias", None)
            biases.append(torch.zeros(len(weight), device=own.weight.device) if bias is None else bias)
        yield _ParameterPair(own.bias, biases)


def _pair_experts(own: ExpertMixture, theirs: Any, model_type: str) -> Iterator[_ParameterPair]:
    """Yield the networks of a mixture of experts, which transformers holds together, and a correction of its router."""
    if own.correction_E is not None:
        yield _ParameterPair(own.correction_E, [theirs.gate.e_score_correction_bias])
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
