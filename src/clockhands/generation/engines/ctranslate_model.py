"""Conversion of an encoder-decoder into the format of CTranslate2: its weights, and its positions as tables.

Each function fills a part of a specification of CTranslate2, ``spec``, from the module of ours that computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from clockhands.errors import MissingPackageError, UsageError
from clockhands.generation.engines.engine import get_end_tokens, get_start_token
from clockhands.model import TransformerConfig
from clockhands.model.block import Block, ResidualConnection
from clockhands.model.stack import Stack
from clockhands.schemes import NoPosition, RoPE, Scheme
from clockhands.shapes import Tensor

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel

__all__ = ["ACTIVATION_NAMES", "TABLE_LENGTH", "import_package", "make_table", "save_model"]

TABLE_LENGTH = 512
"""Positions in the first tables; for longer texts the model is converted again, with longer ones."""
ACTIVATION_NAMES = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}
"""Our names of activations, each with its name in CTranslate2."""


def import_package() -> Any:
    """Import ctranslate2, which is optional. Raises MissingPackageError if it is not installed."""
    try:
        import ctranslate2
    except ImportError as fault:
        raise MissingPackageError("the engine ctranslate2", "ctranslate2") from fault
    return ctranslate2


@torch.no_grad()
def save_model(
    model: ClockhandsPreTrainedModel, folder: str | Path, table_lengths: Sequence[int] = (TABLE_LENGTH, TABLE_LENGTH)
) -> None:
    """Save an encoder-decoder model in the format of CTranslate2, whose vocabulary is the token ids as text.

    ``ctranslate2.Translator`` opens the folder. ``table_lengths``: the positions in the tables of source and target.
    Raises PositionError if a scheme has fewer positions, and UsageError if ctranslate2 is not installed and for a model
    that is not an encoder-decoder or names no start token. What else CTranslate2 cannot run is not noticed here: ask
    ``list_obstacles`` first.
    """
    specs = import_package().specs
    transformer = model.transformer
    if transformer.encoder is None or transformer.decoder is None:
        raise UsageError(
            f"CTranslate2 cannot run this model: its architecture is {transformer.config.architecture!r}, and "
            "only an encoder-decoder translates"
        )
    spec = specs.TransformerSpec(
        _convert_stack(
            specs.transformer_spec.TransformerEncoderSpec, transformer.encoder, transformer.config, table_lengths[0]
        ),
        _convert_stack(
            specs.transformer_spec.TransformerDecoderSpec, transformer.decoder, transformer.config, table_lengths[1]
        ),
    )
    output = spec.decoder.projection
    output.weight = _to_array(transformer.output.weight * transformer.output.scale)
    output.bias = _to_array(transformer.output.bias) if transformer.output.bias is not None else output.bias
    for side, size in (
        ("source", transformer.config.get_vocabulary_size("encoder")),
        ("target", transformer.config.vocab_size),
    ):
        getattr(spec, f"register_{side}_vocabulary")(list(map(str, range(size))))
    # The default names, such as <unk>, are not in this vocabulary. No token is unknown, so that any may stand for it.
    start = str(get_start_token(model))
    spec.config.bos_token = spec.config.decoder_start_token = spec.config.unk_token = start
    # Without an end token, CTranslate2 would end a text at the start token; the engine refuses such a model.
    spec.config.eos_token = str(next(iter(get_end_tokens(model)), start))
    spec.config.layer_norm_epsilon = transformer.config.norm_eps
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(str(folder))


def _convert_stack(make_spec: Any, stack: Stack, config: TransformerConfig, table_length: int) -> Any:
    """Convert one side; ``make_spec`` is the class of its specification in CTranslate2."""
    common = import_package().specs.common_spec
    scheme = stack.schemes.at_input
    rotary = {}
    if isinstance(scheme, RoPE):
        rotary = {
            "rotary_dim": scheme.channels, "rotary_base": scheme.base,
            "rotary_interleave": scheme.layout == "interleaved",
        }  # fmt: skip
    spec = make_spec(
        len(stack.blocks), config.num_heads, pre_norm=config.norm == "pre", no_final_norm=stack.norm is None,
        activation=getattr(common.Activation, ACTIVATION_NAMES[config.activation]), ffn_glu=config.gated,
        rms_norm=config.norm_kind == "rms", num_heads_kv=config.resolved_num_kv_heads,
        head_dim=config.resolved_head_dim, layernorm_embedding=config.embedding_norm, **rotary,
    )  # fmt: skip
    # CTranslate2 has a list of embeddings for an encoder, which could read several inputs, and one for a decoder.
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = _to_array(stack.input.tokens.weight)
    spec.scale_embeddings = float(stack.input.scale)
    if rotary:
        # A specification with encodings that are not filled in is refused; without the attribute nothing is added.
        spec.__dict__.pop("position_encodings", None)
    else:
        spec.position_encodings.encodings = make_table(stack, table_length, config.d_model)
    if stack.norm is not None:
        # A specification refuses new attributes, and that of a post-norm model has none for a norm after the last
        # layer, which CTranslate2 itself reads. Writing into __dict__ bypasses the refusal.
        final_norm = spec.__dict__.setdefault("layer_norm", common.LayerNormSpec(rms_norm=config.norm_kind == "rms"))
        _convert_norm(final_norm, stack.norm)
    if stack.input.norm is not None:
        _convert_norm(spec.layernorm_embedding, stack.input.norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _convert_layer(layer, cast(Block, block), scheme)
    return spec


def make_table(stack: Stack, length: int, d_model: int) -> NDArray[np.float32]:
    """Make the table of what a side adds to the token embedding at positions 0 to length - 1: [length, d_model].

    Raises PositionError if the scheme has fewer positions.
    """
    device = stack.input.tokens.weight.device
    encoding = stack.encode_positions(stack.transform_positions(torch.arange(length, device=device)[None], None))
    return np.zeros((length, d_model), np.float32) if encoding is None else _to_array(encoding[0])


def _convert_layer(spec: Any, block: Block, scheme: Scheme) -> None:
    """Fill in one layer: self-attention, cross-attention where there is one, and the feed-forward network."""
    attention = block.attention
    _convert_linear(spec.self_attention.linear[0], attention.qkv)
    _convert_linear(spec.self_attention.linear[1], attention.out)
    spec.self_attention.queries_scale = np.float32(attention.choose_scale(scheme))
    _convert_norm(spec.self_attention.layer_norm, block.attention_residual)
    if block.cross is not None:
        for part, module in zip(spec.attention.linear, (block.cross.q, block.cross.kv, block.cross.out), strict=True):
            _convert_linear(part, module)
        # Only models whose cross-attention has no position come here (``list_obstacles``).
        spec.attention.queries_scale = np.float32(block.cross.choose_scale(NoPosition()))
        _convert_norm(spec.attention.layer_norm, block.cross_residual)
    _convert_feed_forward(spec.ffn, block)


def _convert_feed_forward(spec: Any, block: Block) -> None:
    """Fill in a feed-forward network; the two halves of a gated one are two matrices in CTranslate2."""
    network: Any = block.feed_forward
    up = network.up
    if network.gated:
        gate, plain = up.weight.chunk(2)
        spec.linear_0.weight, spec.linear_0_noact.weight = _to_array(gate), _to_array(plain)
        if up.bias is not None:
            spec.linear_0.bias, spec.linear_0_noact.bias = map(_to_array, up.bias.chunk(2))
    else:
        _convert_linear(spec.linear_0, up)
    _convert_linear(spec.linear_1, network.down)
    _convert_norm(spec.layer_norm, block.feed_forward_residual)


def _convert_linear(spec: Any, module: nn.Linear) -> None:
    """Fill in a matrix and its bias, if it has one."""
    spec.weight = _to_array(module.weight)
    if module.bias is not None:
        spec.bias = _to_array(module.bias)


def _convert_norm(spec: Any, module: nn.Module) -> None:
    """Fill in a norm, or that of a residual connection; a missing bias is zero."""
    norm = cast(Any, module.norm if isinstance(module, ResidualConnection) else module)
    spec.gamma = _to_array(norm.weight)
    if hasattr(spec, "beta"):
        spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else _to_array(norm.bias)


def _to_array(tensor: Tensor) -> NDArray[np.float32]:
    """Return a tensor as a NumPy array in float32."""
    array: NDArray[np.float32] = tensor.detach().float().cpu().numpy()
    return array
