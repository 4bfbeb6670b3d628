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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from clockhands.errors import MissingPackageError, UsageError, describe_unknown
from clockhands.generation.engines import DecodedSequence, Engine, get_end_tokens, get_start_token
from clockhands.model import Transformer, TransformerConfig
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

    def __init__(self, model: ClockhandsPreTrainedModel, compute_type: str | None = None) -> None:
        super().__init__(model, compute_type or "float32")  # in which CTranslate2 gives the texts of ``generate``
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
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, most: int, beam: int = 1,
        penalty: float = 1.0,
    ) -> list[DecodedSequence]:  # fmt: skip
        """Generate a text for each source. CTranslate2 ends a beam once it has ``beam`` finished texts of a source.

        Raises PositionError if a text needs more positions than a scheme has.
        """
        sides = [self.model.transformer.encoder, self.model.transformer.decoder]
        declared = [stack.schemes.at_input.declares for stack in sides if stack is not None]
        limits = [
            sys.maxsize if scheme.max_length is None or scheme.beyond != "raise" else scheme.max_length
            for scheme in declared
        ]
        # Texts can be as long as the decoder's scheme has positions.
        max_length = min(most, limits[1])
        self._ensure_tables([ids_BT.shape[1], max_length], limits)
        is_token_BT = torch.ones_like(ids_BT, dtype=torch.bool) if mask_BT is None else mask_BT
        sources = [list(map(str, ids_T[mask_T].tolist())) for ids_T, mask_T in zip(ids_BT, is_token_BT, strict=True)]
        # With penalty 0, scores are undivided log-probabilities; a greedy search has no texts to compare. CTranslate2
        # would otherwise write at least one token before the end, and cut sources to 1,024 tokens (0: do not cut).
        penalty = penalty if beam > 1 else 0.0
        results = self.translator.translate_batch(
            sources, beam_size=beam, length_penalty=penalty, max_decoding_length=max_length,
            min_decoding_length=0, max_input_length=0, return_end_token=True, return_scores=True,
            end_token=list(map(str, self.end_tokens)) or None,
        )  # fmt: skip
        texts = []
        for result in results:
            tokens = [int(token) for token in result.hypotheses[0]]
            # CTranslate2 has divided a log-probability by tokens ** penalty.
            texts.append(DecodedSequence(tokens, result.scores[0] * len(tokens) ** penalty))
            is_unfinished = len(tokens) == max_length and tokens[-1] not in self.end_tokens
            if max_length < most and is_unfinished:
                # The scheme has too few positions for such a text: refuse it as the model itself would.
                check_length(torch.tensor(max_length), max_length, self.model.config.transformer_config.decoder.scheme)
        return texts

    def _ensure_tables(self, needed: Sequence[int], limits: Sequence[int]) -> None:
        """Convert the model again if its position tables are too short for sources and texts of the needed lengths.

        ``limits``: the most positions that there are.
        """
        if all(length <= table for length, table in zip(needed, self.table_lengths, strict=True)):
            return
        # Twice the needed positions, so that tables are seldom made again, and no more than there are.
        self.table_lengths = [
            max(length, min(limit, max(TABLE_LENGTH, 2 * length))) for length, limit in zip(needed, limits, strict=True)
        ]
        device = self.model.device
        with tempfile.TemporaryDirectory() as folder:
            save_model(self.model, folder, self.table_lengths)
            self.translator = self.package.Translator(
                folder, device=device.type, device_index=device.index or 0, compute_type=self.compute_type,
                intra_threads=torch.get_num_threads(),
            )  # fmt: skip


def list_obstacles(transformer: Transformer) -> list[str]:
    """List why CTranslate2 cannot run a model, one reason each; empty if it can."""
    config = transformer.config
    reasons = {
        f"its architecture is {config.architecture!r}": config.architecture != "encoder-decoder",
        "it has no residual connections (residual = false)": not config.residual,
        "its encoder has a causal mask (causal_encoder)": config.causal_encoder,
        "a layer lies before its output matrix (output_transform)": config.output_transform,
        f"the output of its sublayers has a norm (norm = {config.norm!r})": config.norm not in ("pre", "post"),
        "its queries and keys have norms (query_key_norm)": config.query_key_norm != "none",
        "its keys and values come from a compressed state (latent_width)": config.latent_width is not None,
        "its feed-forward layers have experts (experts)": config.experts > 0,
        "its first layer has no norm before attention (first_norm = false)": not config.first_norm,
        f"its activation is {config.activation!r}": config.activation not in ACTIVATION_NAMES,
    }
    for side, stack in (("encoder", transformer.encoder), ("decoder", transformer.decoder)):
        if stack is None:
            continue
        position, schemes = stack.position_config, stack.schemes.used
        other = "concatenated" if position.combine == "concatenate" else "projected"
        by_length = any(scheme.declares.depends_on_length for scheme in schemes)
        own = {
            f"positions that are not added but {other}": position.combine != "add",
            "positions that are added again at every layer (every_layer)": position.every_layer,
            "layers without position (skip_every)": bool(position.skip_every),
            f"layers with schemes of their own ({position.name})": position.layers is not None,
            f"positions that are transformed ({position.transform})": position.transform is not None,
            f"positions that depend on the length of the text ({position.name!r})": by_length,
        }
        # It rotates by the frequencies of RoPE's paper, with no learned factors, and leaves values as they are.
        is_plain_rope = all(
            # A scheme that is made of RoPE may rotate otherwise.
            isinstance(scheme, RoPE) and type(scheme) is RoPE and type(scheme.spectrum) is Plain
            and scheme.alpha_F is None and not scheme.rotates_values
            for scheme in schemes
        )  # fmt: skip
        in_attention = any(map(acts_in_attention, schemes)) and not is_plain_rope
        only = "it has added encodings and plain rotary embedding only"
        own[f"positions of the scheme {position.name!r} ({only})"] = in_attention and not by_length
        reasons |= {f"{side}: {reason}": holds for reason, holds in own.items()}
    cross = () if transformer.cross_schemes is None else transformer.cross_schemes.used
    reasons[f"cross-attention: positions of the scheme {config.cross.scheme!r}"] = any(map(acts_in_attention, cross))
    return [reason for reason, holds in reasons.items() if holds]


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
    specs, transformer = _import_package().specs, model.transformer
    config, encoder, decoder, output = transformer.config, transformer.encoder, transformer.decoder, transformer.output
    if encoder is None or decoder is None:
        raise UsageError(
            f"CTranslate2 cannot run this model: its architecture is {config.architecture!r}, and only an "
            "encoder-decoder translates"
        )
    classes = specs.transformer_spec
    spec = specs.TransformerSpec(
        _convert_stack(classes.TransformerEncoderSpec, encoder, config, table_lengths[0]),
        _convert_stack(classes.TransformerDecoderSpec, decoder, config, table_lengths[1]),
    )
    spec.decoder.projection.weight = _to_array(output.weight * output.scale)
    if output.bias is not None:
        spec.decoder.projection.bias = _to_array(output.bias)
    spec.register_source_vocabulary([str(token) for token in range(config.get_vocabulary_size("encoder"))])
    spec.register_target_vocabulary([str(token) for token in range(config.vocab_size)])
    # The default names, such as <unk>, are not in this vocabulary. No token is unknown, so that any may stand for it.
    start = str(get_start_token(model))
    spec.config.bos_token = spec.config.decoder_start_token = spec.config.unk_token = start
    # Without an end token, CTranslate2 would end a text at the start token; the engine refuses such a model.
    spec.config.eos_token = str(next(iter(get_end_tokens(model)), start))
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.validate()
    spec.optimize(quantization="float32")
    Path(folder).mkdir(parents=True, exist_ok=True)
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
        _convert_layer(layer, block, scheme)
    return spec


def make_table(stack: Stack, length: int, d_model: int) -> NDArray[np.float32]:
    """Make the table of what a side adds to the token embedding at positions 0 to length - 1: [length, d_model].

    Raises PositionError if the scheme has fewer positions.
    """
    device = stack.input.tokens.weight.device
    encoding = stack.encode_positions(stack.transform_positions(torch.arange(length, device=device)[None], None))
    return np.zeros((length, d_model), np.float32) if encoding is None else _to_array(encoding[0])


def _convert_layer(spec: Any, block: Any, scheme: Scheme) -> None:
    """Fill in one layer: self-attention, cross-attention where there is one, and the feed-forward network."""
    network: Any = block.feed_forward
    pairs = [(spec.self_attention.linear[0], block.attention.qkv), (spec.self_attention.linear[1], block.attention.out)]
    spec.self_attention.queries_scale = np.float32(block.attention.choose_scale(scheme))
    _convert_norm(spec.self_attention.layer_norm, block.attention_residual.norm)
    if block.cross is not None:
        pairs += zip(spec.attention.linear, (block.cross.q, block.cross.kv, block.cross.out), strict=True)
        # Only models whose cross-attention has no position come here (``list_obstacles``).
        spec.attention.queries_scale = np.float32(block.cross.choose_scale(NoPosition()))
        _convert_norm(spec.attention.layer_norm, block.cross_residual.norm)
    if network.gated:  # its two halves are two matrices in CTranslate2
        gate, plain = network.up.weight.chunk(2)
        spec.ffn.linear_0.weight, spec.ffn.linear_0_noact.weight = _to_array(gate), _to_array(plain)
        if network.up.bias is not None:
            spec.ffn.linear_0.bias, spec.ffn.linear_0_noact.bias = map(_to_array, network.up.bias.chunk(2))
    else:
        pairs.append((spec.ffn.linear_0, network.up))
    pairs.append((spec.ffn.linear_1, network.down))
    _convert_norm(spec.ffn.layer_norm, block.feed_forward_residual.norm)
    for part, module in pairs:
        part.weight = _to_array(module.weight)
        if module.bias is not None:
            part.bias = _to_array(module.bias)


def _convert_norm(spec: Any, norm: Any) -> None:
    """Fill in a norm; a missing bias is zero."""
    spec.gamma = _to_array(norm.weight)
    if hasattr(spec, "beta"):
        spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else _to_array(norm.bias)


def _to_array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().float().cpu().numpy()
    return array
