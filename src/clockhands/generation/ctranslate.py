"""Greedy and beam search by CTranslate2, an inference engine in C++: the same texts in less time, in int8 if asked.

It knows the block of the paper and its usual variants, and positions that are added to the embedding or rotate queries
and keys. What else a model has is named, and the model refused: ``decode.py`` takes everything.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from clockhands.errors import UsageError, unknown
from clockhands.generation.decode import Written, ends, first_word
from clockhands.generation.step import idle
from clockhands.model import Transformer, TransformerConfig
from clockhands.model.block import Block, Sublayer
from clockhands.model.transformer import Stack
from clockhands.schemes import NoPosition, RoPE, Scheme
from clockhands.schemes.rotary.spectra import Spectrum
from clockhands.schemes.scheme import check_length
from clockhands.shapes import Bool, Int, Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PLACES = 512
"""Positions of the first table; longer texts have it made again."""
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}


class EngineDecoder:
    """Writes as ``Decoder`` does, with a copy of the model's weights in CTranslate2.

    Args:
        model: a ``ClockhandsForSeq2SeqLM``, on the CPU or a GPU; the engine computes where the model lies.
        compute_type: of its matrix products, as the engine names them: ``float32``, ``int8``, ``bfloat16``, ...

    Raises UsageError if the package is not installed, the engine cannot express the model (naming all reasons), or it
    or the device has no such type.
    """

    def __init__(self, model: PreTrainedModel, compute_type: str = "float32") -> None:
        self.engine = _package()
        faults = obstacles(model.model)
        if faults:
            raise UsageError(
                f"CTranslate2 cannot express this model: {'; '.join(faults)}. Leave --engine out: our own decoder can"
            )
        self.model, self.compute_type = model, compute_type
        kind = model.device.type
        types = sorted(self.engine.get_supported_compute_types(kind))
        if compute_type not in types:
            raise UsageError(unknown(f"compute type of CTranslate2 on this {kind}", compute_type, types))
        self.ends, self.places = ends(model), [0, 0]
        self.translator: Any = None

    def __call__(
        self,
        ids_BT: Int[Tensor, "B T"],
        mask_BT: Bool[Tensor, "B T"] | None,
        *,
        longest: int,
        beam: int = 1,
        length_penalty: float = 1.0,
    ) -> list[Written]:
        """What the model writes for each source, as ``Decoder`` does.

        A beam ends by the engine's own rule: once ``beam`` texts of a source were found. Raises PositionError if a text
        needs more positions than a scheme has.
        """
        room = self._reach(ids_BT.shape[1], longest)
        real_BT = torch.ones_like(ids_BT, dtype=torch.bool) if mask_BT is None else mask_BT
        sources = [list(map(str, ids[real].tolist())) for ids, real in zip(ids_BT, real_BT, strict=True)]
        penalty = length_penalty if beam > 1 else 0.0
        found = self.translator.translate_batch(
            sources, beam_size=beam, length_penalty=penalty, max_decoding_length=room, min_decoding_length=0,
            max_input_length=0, end_token=list(map(str, self.ends)) or None, return_end_token=True, return_scores=True,
        )  # fmt: skip
        written = [_written(one.hypotheses[0], one.scores[0], penalty) for one in found]
        if room < longest and any(len(one.words) == room and one.words[-1] not in self.ends for one in written):
            check_length(torch.tensor(room), room, self.model.config.core.decoder.scheme)
        return written

    def _reach(self, source: int, longest: int) -> int:
        """Have tables for a source of so many words, and for so many written words or as many as the decoder has."""
        limits = [_limit(cast(Scheme, stack.schemes[0])) for _, stack in _stacks(self.model.model)]
        wanted = [source, min(longest, limits[1])]
        if any(want > place for want, place in zip(wanted, self.places, strict=True)):
            self.places = [_roomy(want, limit) for want, limit in zip(wanted, limits, strict=True)]
            device = self.model.device
            with tempfile.TemporaryDirectory() as folder:
                save(self.model, folder, self.places)
                self.translator = self.engine.Translator(
                    folder, device=device.type, device_index=device.index or 0, compute_type=self.compute_type,
                    intra_threads=torch.get_num_threads(),
                )  # fmt: skip
        return wanted[1]


def _limit(scheme: Scheme) -> int:
    """How many positions a scheme has."""
    declared = scheme.declares
    return sys.maxsize if declared.max_length is None or declared.beyond != "raise" else declared.max_length


def _roomy(wanted: int, limit: int) -> int:
    """So many positions and as many again, if there are so many."""
    return max(wanted, min(limit, max(PLACES, 2 * wanted)))


def _written(words: list[str], score: float, penalty: float) -> Written:
    return Written([int(word) for word in words], score * len(words) ** penalty)


def _package() -> Any:
    """The package, imported late. Raises UsageError if it is missing."""
    try:
        import ctranslate2
    except ImportError as fault:
        raise UsageError(
            "--engine ctranslate2 needs the package 'ctranslate2': pip install 'clockhands[ctranslate2]'"
        ) from fault
    return ctranslate2


def obstacles(core: Transformer) -> list[str]:
    """What of this model the engine has no word for."""
    config = core.config
    found = [
        reason
        for holds, reason in (
            (config.kind != "encoder-decoder", f"it is a model of kind {config.kind}"),
            (not config.residual, "it has no residual connections (residual = false)"),
            (config.causal_encoder, "its encoder has a causal mask (causal_encoder)"),
            (config.output_transform, "a layer lies before its output matrix (output_transform)"),
        )
        if holds
    ]
    for side, stack in _stacks(core):
        found += [f"{side}: {reason}" for reason in _side_obstacles(stack)]
    assert core.cross_schemes is not None or found
    if core.cross_schemes is not None and not all(map(idle, _of_all(core.cross_schemes))):
        found.append(f"cross-attention: positions of the scheme {config.cross.scheme!r}")
    return found


def _side_obstacles(stack: Stack) -> Iterator[str]:
    position = stack.position
    if position.combine != "add":
        yield f"positions that are not added but {position.combine}d"
    if position.every_layer:
        yield "positions that are added again at every layer (every_layer)"
    if position.skip_every:
        yield "layers without position (skip_every)"
    if position.transform is not None:
        yield f"positions that are transformed ({position.transform})"
    schemes = _of_all(stack.schemes)
    if any(scheme.declares.depends_on_length for scheme in schemes):
        yield f"positions that depend on the length of the text ({position.scheme!r})"
    elif not all(map(idle, schemes)) and not all(map(_plain_rope, schemes)):
        yield f"positions of the scheme {position.scheme!r} (what is added, and plain rotary embedding, it can do)"


def _of_all(schemes: nn.ModuleList) -> list[Scheme]:
    return [scheme for scheme in schemes if isinstance(scheme, Scheme)]


def _plain_rope(scheme: Scheme) -> bool:
    return type(scheme) is RoPE and type(scheme.spectrum) is Spectrum and scheme.alpha_F is None


def _stacks(core: Transformer) -> list[tuple[str, Stack]]:
    return [(side, stack) for side, stack in (("encoder", core.encoder), ("decoder", core.decoder)) if stack]


@torch.no_grad()
def save(model: PreTrainedModel, folder: str | Path, places: Sequence[int] = (PLACES, PLACES)) -> None:
    """Write a model in the engine's format, with tables of so many ``places`` for the source and for what is written.

    Its words are token ids as text.

    Raises PositionError if a scheme has no so many positions.
    """
    specs = _package().specs
    core: Transformer = model.model
    assert core.encoder is not None and core.decoder is not None
    spec = specs.TransformerSpec(
        _stack(specs.transformer_spec.TransformerEncoderSpec, core.encoder, core.config, places[0]),
        _stack(specs.transformer_spec.TransformerDecoderSpec, core.decoder, core.config, places[1]),
    )
    output = spec.decoder.projection
    output.weight = _array(core.output.weight * core.output.scale)
    output.bias = _array(core.output.bias) if core.output.bias is not None else output.bias
    for side, words in (("source", core.config.vocabulary("encoder")), ("target", core.config.vocab_size)):
        getattr(spec, f"register_{side}_vocabulary")(list(map(str, range(words))))
    start = str(first_word(model))
    spec.config.bos_token = spec.config.decoder_start_token = spec.config.unk_token = start
    spec.config.eos_token = str(next(iter(ends(model)), start))
    spec.config.layer_norm_epsilon = core.config.norm_eps
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(str(folder))


def _stack(kind: Any, stack: Stack, config: TransformerConfig, places: int) -> Any:
    """One side in the engine's terms."""
    common = _package().specs.common_spec
    scheme = cast(Scheme, stack.schemes[0])
    turned = {}
    if isinstance(scheme, RoPE):
        turned = {
            "rotary_dim": scheme.channels, "rotary_base": scheme.base,
            "rotary_interleave": scheme.layout == "interleaved",
        }  # fmt: skip
    spec = kind(
        len(stack.blocks), config.num_heads, pre_norm=config.norm == "pre", no_final_norm=stack.norm is None,
        activation=getattr(common.Activation, ACTIVATIONS[config.activation]), ffn_glu=config.gated,
        rms_norm=config.norm_kind == "rms", num_heads_kv=config.kv_heads, head_dim=config.d_head,
        layernorm_embedding=config.embedding_norm, **turned,
    )  # fmt: skip
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = _array(stack.input.tokens.weight)
    spec.scale_embeddings = float(stack.input.scale)
    if turned:
        spec.__dict__.pop("position_encodings", None)
    else:
        spec.position_encodings.encodings = table(stack, places, config.d_model)
    if stack.norm is not None:
        # A specification is closed, and that of a post-norm model has no place for a last norm; the engine has.
        last = spec.__dict__.setdefault("layer_norm", common.LayerNormSpec(rms_norm=config.norm_kind == "rms"))
        _norm(last, stack.norm)
    if stack.input.norm is not None:
        _norm(spec.layernorm_embedding, stack.input.norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _layer(layer, cast(Block, block), scheme)
    return spec


def table(stack: Stack, places: int, d_model: int) -> Any:
    """What is added at every position."""
    device = stack.input.tokens.weight.device
    encoding = cast(Scheme, stack.schemes[0]).encode(
        stack.transform_positions(torch.arange(places, device=device)[None], None)
    )
    return np.zeros((places, d_model), np.float32) if encoding is None else _array(encoding[0])


def _layer(spec: Any, block: Block, scheme: Scheme) -> None:
    attention = block.attention
    _linear(spec.self_attention.linear[0], attention.qkv)
    _linear(spec.self_attention.linear[1], attention.out)
    spec.self_attention.queries_scale = np.float32(attention.logit_scale(scheme))
    _norm(spec.self_attention.layer_norm, block.attention_residual)
    if block.cross is not None:
        for part, module in zip(spec.attention.linear, (block.cross.q, block.cross.kv, block.cross.out), strict=True):
            _linear(part, module)
        spec.attention.queries_scale = np.float32(block.cross.logit_scale(NoPosition()))
        _norm(spec.attention.layer_norm, block.cross_residual)
    _feed_forward(spec.ffn, block)


def _feed_forward(spec: Any, block: Block) -> None:
    up = block.feed_forward.up
    if block.feed_forward.gated:
        gate, plain = up.weight.chunk(2)
        spec.linear_0.weight, spec.linear_0_noact.weight = _array(gate), _array(plain)
        if up.bias is not None:
            spec.linear_0.bias, spec.linear_0_noact.bias = map(_array, up.bias.chunk(2))
    else:
        _linear(spec.linear_0, up)
    _linear(spec.linear_1, block.feed_forward.down)
    _norm(spec.layer_norm, block.feed_forward_residual)


def _linear(spec: Any, module: nn.Linear) -> None:
    spec.weight = _array(module.weight)
    if module.bias is not None:
        spec.bias = _array(module.bias)


def _norm(spec: Any, module: nn.Module) -> None:
    norm = cast(Any, module.norm if isinstance(module, Sublayer) else module)
    spec.gamma = _array(norm.weight)
    if hasattr(spec, "beta"):
        spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().numpy()
