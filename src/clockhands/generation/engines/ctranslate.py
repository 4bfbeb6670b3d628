"""Greedy and beam search by CTranslate2, an inference engine in C++: several times as fast as ``generate``.

Greedy search gives the same texts as ``generate`` of transformers. Beam search stops earlier and may give others, and
int8 is approximate.

CTranslate2 has the layers of Vaswani et al. (2017) and their usual variants, and positions that are added to the
embedding or that rotate queries and keys. A model with anything else is refused with the reasons. The second half of
this file converts a model: each function there fills a part of a specification of CTranslate2, ``spec``, from the
module of ours that computes the same.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from clockhands.errors import MissingPackageError, UsageError, describe_unknown
from clockhands.generation.engines import DecodedSequence, DecodingOptions, Engine, get_end_tokens, get_start_token
from clockhands.model import Transformer, TransformerConfig
from clockhands.model.block import Block, ResidualConnection
from clockhands.model.kv_cache import acts_in_attention
from clockhands.model.stack import Stack
from clockhands.schemes import NoPosition, RoPE, Scheme
from clockhands.schemes.position_checks import check_length
from clockhands.schemes.rotary.spectra import Plain
from clockhands.shapes import Bool, Int, Tensor

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel

TABLE_LENGTH = 512
"""Positions in the first tables; for longer texts the model is converted again, with longer ones."""
ACTIVATION_NAMES = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}
"""Our names of activations, each with its name in CTranslate2."""


class CTranslate2Engine(Engine):
    """A copy of the model in CTranslate2; its compute types are float32 (the default), int8, bfloat16 and others.

    Raises UsageError if the package is not installed, if CTranslate2 cannot run the model (with all reasons), if the
    model names no start token, or if CTranslate2 does not have the compute type on this device.
    """

    usual_type = "float32"  # in which CTranslate2 gives the texts of ``generate``

    def __init__(self, model: ClockhandsPreTrainedModel, compute_type: str | None = None) -> None:
        super().__init__(model, compute_type)
        self.package = _import_package()
        self.end_tokens = get_end_tokens(model)
        obstacles = list_obstacles(model.transformer)
        if not self.end_tokens:
            # CTranslate2 ends a text at some token in any case; ``generate`` goes on to the length bound.
            obstacles.append("its configuration names no token that ends a text (eos_token_id)")
        if obstacles:
            raise UsageError(
                f"CTranslate2 cannot run this model: {'; '.join(obstacles)}. Leave the engine out (--engine): "
                "transformers runs every model"
            )
        get_start_token(model)  # refused here, and not when the first batch converts the model
        device = model.device.type
        types = sorted(self.package.get_supported_compute_types(device))
        if self.compute_type not in types:
            noun = f"compute type of CTranslate2 on this {device}"
            raise UsageError(describe_unknown(noun, self.compute_type, types))
        self.table_lengths = [0, 0]
        """The positions in the tables of source and target; 0 before the first batch."""
        self.translator: Any = None

    def generate(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, decoding: DecodingOptions
    ) -> list[DecodedSequence]:
        """Generate a text for each source. CTranslate2 ends a beam once it has ``beam`` finished texts of a source.

        Raises PositionError if a text needs more positions than a scheme has.
        """
        max_length = self._ensure_tables(ids_BT.shape[1], decoding.max_new_tokens)
        is_token_BT = torch.ones_like(ids_BT, dtype=torch.bool) if mask_BT is None else mask_BT
        sources = [list(map(str, ids_T[mask_T].tolist())) for ids_T, mask_T in zip(ids_BT, is_token_BT, strict=True)]
        # With penalty 0, scores are undivided log-probabilities; a greedy search has no texts to compare. CTranslate2
        # would otherwise write at least one token before the end, and cut sources to 1,024 tokens (0: do not cut).
        penalty = decoding.length_penalty if decoding.beam > 1 else 0.0
        results = self.translator.translate_batch(
            sources, beam_size=decoding.beam, length_penalty=penalty, max_decoding_length=max_length,
            min_decoding_length=0, max_input_length=0, return_end_token=True, return_scores=True,
            end_token=list(map(str, self.end_tokens)) or None,
        )  # fmt: skip
        # CTranslate2 has divided a log-probability by tokens ** penalty.
        texts = [
            DecodedSequence(
                [int(token) for token in result.hypotheses[0]], result.scores[0] * len(result.hypotheses[0]) ** penalty
            )
            for result in results
        ]
        unfinished = (len(text.tokens) == max_length and text.tokens[-1] not in self.end_tokens for text in texts)
        if max_length < decoding.max_new_tokens and any(unfinished):
            # The scheme has too few positions for such a text: refuse it as the model itself would.
            check_length(torch.tensor(max_length), max_length, self.model.config.transformer_config.decoder.scheme)
        return texts

    def _ensure_tables(self, source_length: int, target_length: int) -> int:
        """Convert the model again if its position tables are too short for sources and texts of these lengths.

        Returns how long texts can be: ``target_length``, or the number of positions of the decoder's scheme if that is
        less.
        """
        declared = [stack.schemes.at_input.declares for _, stack in _list_stacks(self.model.transformer)]
        limits = [
            sys.maxsize if scheme.max_length is None or scheme.beyond != "raise" else scheme.max_length
            for scheme in declared
        ]
        needed = [source_length, min(target_length, limits[1])]
        if any(length > table for length, table in zip(needed, self.table_lengths, strict=True)):
            # Twice the needed positions, so that tables are seldom made again, and no more than there are.
            self.table_lengths = [
                max(length, min(limit, max(TABLE_LENGTH, 2 * length)))
                for length, limit in zip(needed, limits, strict=True)
            ]
            device = self.model.device
            with tempfile.TemporaryDirectory() as folder:
                save_model(self.model, folder, self.table_lengths)
                self.translator = self.package.Translator(
                    folder, device=device.type, device_index=device.index or 0, compute_type=self.compute_type,
                    intra_threads=torch.get_num_threads(),
                )  # fmt: skip
        return needed[1]


def list_obstacles(transformer: Transformer) -> list[str]:
    """List why CTranslate2 cannot run a model, one reason each; empty if it can."""
    config = transformer.config
    obstacles = [
        reason
        for holds, reason in (
            (config.architecture != "encoder-decoder", f"its architecture is {config.architecture!r}"),
            (not config.residual, "it has no residual connections (residual = false)"),
            (config.causal_encoder, "its encoder has a causal mask (causal_encoder)"),
            (config.output_transform, "a layer lies before its output matrix (output_transform)"),
            (config.norm not in ("pre", "post"), f"the output of its sublayers has a norm (norm = {config.norm!r})"),
            (config.query_key_norm != "none", "its queries and keys have norms (query_key_norm)"),
            (config.latent_width is not None, "its keys and values come from a compressed state (latent_width)"),
            (config.experts > 0, "its feed-forward layers have experts (experts)"),
            (not config.first_norm, "its first layer has no norm before attention (first_norm = false)"),
            (config.activation not in ACTIVATION_NAMES, f"its activation is {config.activation!r}"),
        )
        if holds
    ]
    for side, stack in _list_stacks(transformer):
        obstacles += [f"{side}: {reason}" for reason in _list_side_obstacles(stack)]
    cross_schemes = transformer.cross_schemes
    if cross_schemes is not None and any(map(acts_in_attention, cross_schemes.used)):
        obstacles.append(f"cross-attention: positions of the scheme {config.cross.scheme!r}")
    return obstacles


def _list_side_obstacles(stack: Stack) -> Iterator[str]:
    """Yield why CTranslate2 cannot run the positional encoding of one side."""
    position = stack.position_config
    if position.combine != "add":
        yield f"positions that are not added but {'concatenated' if position.combine == 'concatenate' else 'projected'}"
    if position.every_layer:
        yield "positions that are added again at every layer (every_layer)"
    if position.skip_every:
        yield "layers without position (skip_every)"
    if position.layers is not None:
        yield f"layers with schemes of their own ({position.name})"
    if position.transform is not None:
        yield f"positions that are transformed ({position.transform})"
    schemes = stack.schemes.used
    if any(scheme.declares.depends_on_length for scheme in schemes):
        yield f"positions that depend on the length of the text ({position.name!r})"
        return
    # RoPE with the frequencies of its paper, no learned factors, and values as they are.
    is_plain_rope = all(
        type(scheme) is RoPE and not scheme.rotates_values and type(scheme.spectrum) is Plain and scheme.alpha_F is None
        for scheme in schemes
    )
    if any(map(acts_in_attention, schemes)) and not is_plain_rope:
        yield f"positions of the scheme {position.name!r} (it has added encodings and plain rotary embedding only)"


def _list_stacks(transformer: Transformer) -> list[tuple[str, Stack]]:
    """Return the stacks that a model has, encoder before decoder, with the names of their sides."""
    sides = (("encoder", transformer.encoder), ("decoder", transformer.decoder))
    return [(side, stack) for side, stack in sides if stack is not None]


def _import_package() -> Any:
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
    specs = _import_package().specs
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
    common = _import_package().specs.common_spec
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
    network: Any = block.feed_forward
    if network.gated:  # its two halves are two matrices in CTranslate2
        gate, plain = network.up.weight.chunk(2)
        spec.ffn.linear_0.weight, spec.ffn.linear_0_noact.weight = _to_array(gate), _to_array(plain)
        if network.up.bias is not None:
            spec.ffn.linear_0.bias, spec.ffn.linear_0_noact.bias = map(_to_array, network.up.bias.chunk(2))
    else:
        _convert_linear(spec.ffn.linear_0, network.up)
    _convert_linear(spec.ffn.linear_1, network.down)
    _convert_norm(spec.ffn.layer_norm, block.feed_forward_residual)


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
