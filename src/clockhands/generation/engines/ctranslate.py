"""Greedy and beam search by CTranslate2, an inference engine in C++, in less time.

Greedy search gives the texts of the engine ``clockhands``, beam search stops earlier and may give others, and int8 is
approximate.

It knows the block of the paper and its usual variants, and positions that are added to the embedding or rotate queries
and keys. A model with anything else is refused, and the reasons are named; the engine ``clockhands`` takes every model.
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

from clockhands.errors import UsageError, describe_unknown
from clockhands.generation.engines.engine import DecodedSequence, Decoding, Engine, get_end_tokens, get_first_token
from clockhands.model import Transformer, TransformerConfig
from clockhands.model.block import Block, ResidualConnection
from clockhands.model.kv_cache import acts_in_attention
from clockhands.model.transformer import Stack
from clockhands.schemes import NoPosition, RoPE, Scheme
from clockhands.schemes.rotary.spectra import Spectrum
from clockhands.schemes.scheme import check_length
from clockhands.shapes import Bool, Int, Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PLACES = 512
"""Positions of the first table; longer texts have it made again."""
COMBINED = {"concatenate": "concatenated", "project": "projected"}
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}


class CTranslate2Engine(Engine):
    """A copy of the model in CTranslate2; the compute types are those of the engine: float32, int8, bfloat16, ...

    Raises UsageError if the package is not installed, the engine cannot express the model (naming all reasons), or it
    or the device has no such compute type.
    """

    def __init__(self, model: PreTrainedModel, compute_type: str = "float32") -> None:
        super().__init__(model, compute_type)
        self.package = _import_package()
        faults = list_obstacles(model.model)
        if faults:
            raise UsageError(
                f"CTranslate2 cannot express this model: {'; '.join(faults)}. Leave --engine out: the engine "
                "clockhands takes every model"
            )
        device = model.device.type
        types = sorted(self.package.get_supported_compute_types(device))
        if compute_type not in types:
            raise UsageError(describe_unknown(f"compute type of CTranslate2 on this {device}", compute_type, types))
        self.ends, self.places = get_end_tokens(model), [0, 0]
        self.translator: Any = None

    def write(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, decoding: Decoding
    ) -> list[DecodedSequence]:
        """Write a text for each source. A beam ends by the engine's own rule: once it has ``beam`` texts of a source.

        Raises PositionError if a text needs more positions than a scheme has.
        """
        longest = decoding.max_new_tokens
        room = self._reach(ids_BT.shape[1], longest)
        real_BT = torch.ones_like(ids_BT, dtype=torch.bool) if mask_BT is None else mask_BT
        sources = [list(map(str, ids[real].tolist())) for ids, real in zip(ids_BT, real_BT, strict=True)]
        penalty = decoding.length_penalty if decoding.beam > 1 else 0.0
        results = self.translator.translate_batch(
            sources, beam_size=decoding.beam, length_penalty=penalty, max_decoding_length=room, min_decoding_length=0,
            max_input_length=0, end_token=list(map(str, self.ends)) or None, return_end_token=True, return_scores=True,
        )  # fmt: skip
        written = [_read_result(result.hypotheses[0], result.scores[0], penalty) for result in results]
        cut = (len(text.tokens) == room and text.tokens[-1] not in self.ends for text in written)
        if room < longest and any(cut):
            check_length(torch.tensor(room), room, self.model.config.core.decoder.scheme)
        return written

    def _reach(self, source: int, longest: int) -> int:
        """Make position tables for a source of ``source`` tokens and a text of ``longest``, or of all that there are.

        Returns how many tokens can be written.
        """
        limits = [_count_positions(cast(Scheme, stack.schemes[0])) for _, stack in _list_stacks(self.model.model)]
        wanted = [source, min(longest, limits[1])]
        if any(want > place for want, place in zip(wanted, self.places, strict=True)):
            self.places = [_round_up(want, limit) for want, limit in zip(wanted, limits, strict=True)]
            device = self.model.device
            with tempfile.TemporaryDirectory() as folder:
                save_model(self.model, folder, self.places)
                self.translator = self.package.Translator(
                    folder, device=device.type, device_index=device.index or 0, compute_type=self.compute_type,
                    intra_threads=torch.get_num_threads(),
                )  # fmt: skip
        return wanted[1]


def _count_positions(scheme: Scheme) -> int:
    """Return how many positions a scheme has."""
    declared = scheme.declares
    return sys.maxsize if declared.max_length is None or declared.beyond != "raise" else declared.max_length


def _round_up(wanted: int, limit: int) -> int:
    """Return twice the wanted positions, so that few texts make the tables again; at most as many as there are."""
    return max(wanted, min(limit, max(PLACES, 2 * wanted)))


def _read_result(tokens: list[str], score: float, penalty: float) -> DecodedSequence:
    """Undo the length penalty, by which the engine has divided the log-probability."""
    return DecodedSequence([int(token) for token in tokens], score * len(tokens) ** penalty)


def _import_package() -> Any:
    """Import the package, which is optional. Raises UsageError if it is missing."""
    try:
        import ctranslate2
    except ImportError as fault:
        raise UsageError(
            "--engine ctranslate2 needs the package 'ctranslate2': pip install 'clockhands[ctranslate2]'"
        ) from fault
    return ctranslate2


def list_obstacles(core: Transformer) -> list[str]:
    """List what of this model the engine cannot express, one reason each; empty if nothing."""
    config = core.config
    obstacles = [
        reason
        for holds, reason in (
            (config.kind != "encoder-decoder", f"it is a model of kind {config.kind}"),
            (not config.residual, "it has no residual connections (residual = false)"),
            (config.causal_encoder, "its encoder has a causal mask (causal_encoder)"),
            (config.output_transform, "a layer lies before its output matrix (output_transform)"),
        )
        if holds
    ]
    for side, stack in _list_stacks(core):
        obstacles += [f"{side}: {reason}" for reason in _list_side_obstacles(stack)]
    assert core.cross_schemes is not None or obstacles
    if core.cross_schemes is not None and any(map(acts_in_attention, _list_schemes(core.cross_schemes))):
        obstacles.append(f"cross-attention: positions of the scheme {config.cross.scheme!r}")
    return obstacles


def _list_side_obstacles(stack: Stack) -> Iterator[str]:
    """Yield what of one side the engine cannot express."""
    position = stack.position
    if position.combine != "add":
        yield f"positions that are not added but {COMBINED[position.combine]}"
    if position.every_layer:
        yield "positions that are added again at every layer (every_layer)"
    if position.skip_every:
        yield "layers without position (skip_every)"
    if position.transform is not None:
        yield f"positions that are transformed ({position.transform})"
    schemes = _list_schemes(stack.schemes)
    if any(scheme.declares.depends_on_length for scheme in schemes):
        yield f"positions that depend on the length of the text ({position.scheme!r})"
    elif any(map(acts_in_attention, schemes)) and not all(map(_is_plain_rope, schemes)):
        yield f"positions of the scheme {position.scheme!r} (what is added, and plain rotary embedding, it can do)"


def _list_schemes(schemes: nn.ModuleList) -> list[Scheme]:
    return [scheme for scheme in schemes if isinstance(scheme, Scheme)]


def _is_plain_rope(scheme: Scheme) -> bool:
    return type(scheme) is RoPE and type(scheme.spectrum) is Spectrum and scheme.alpha_F is None


def _list_stacks(core: Transformer) -> list[tuple[str, Stack]]:
    return [(side, stack) for side, stack in (("encoder", core.encoder), ("decoder", core.decoder)) if stack]


@torch.no_grad()
def save_model(model: PreTrainedModel, folder: str | Path, places: Sequence[int] = (PLACES, PLACES)) -> None:
    """Write a model in the engine's format, with position tables of ``places`` rows for the source and for the target.

    The engine's vocabulary is the token ids as text. Raises PositionError if a scheme has fewer positions.
    """
    specs = _import_package().specs
    core: Transformer = model.model
    assert core.encoder is not None and core.decoder is not None
    spec = specs.TransformerSpec(
        _convert_stack(specs.transformer_spec.TransformerEncoderSpec, core.encoder, core.config, places[0]),
        _convert_stack(specs.transformer_spec.TransformerDecoderSpec, core.decoder, core.config, places[1]),
    )
    output = spec.decoder.projection
    output.weight = _to_array(core.output.weight * core.output.scale)
    output.bias = _to_array(core.output.bias) if core.output.bias is not None else output.bias
    for side, size in (("source", core.config.vocabulary("encoder")), ("target", core.config.vocab_size)):
        getattr(spec, f"register_{side}_vocabulary")(list(map(str, range(size))))
    start = str(get_first_token(model))
    spec.config.bos_token = spec.config.decoder_start_token = spec.config.unk_token = start
    spec.config.eos_token = str(next(iter(get_end_tokens(model)), start))
    spec.config.layer_norm_epsilon = core.config.norm_eps
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(str(folder))


def _convert_stack(kind: Any, stack: Stack, config: TransformerConfig, places: int) -> Any:
    """Convert one side to the engine's specification."""
    common = _import_package().specs.common_spec
    scheme = cast(Scheme, stack.schemes[0])
    rotary = {}
    if isinstance(scheme, RoPE):
        rotary = {
            "rotary_dim": scheme.channels, "rotary_base": scheme.base,
            "rotary_interleave": scheme.layout == "interleaved",
        }  # fmt: skip
    spec = kind(
        len(stack.blocks), config.num_heads, pre_norm=config.norm == "pre", no_final_norm=stack.norm is None,
        activation=getattr(common.Activation, ACTIVATIONS[config.activation]), ffn_glu=config.gated,
        rms_norm=config.norm_kind == "rms", num_heads_kv=config.kv_heads, head_dim=config.d_head,
        layernorm_embedding=config.embedding_norm, **rotary,
    )  # fmt: skip
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = _to_array(stack.input.tokens.weight)
    spec.scale_embeddings = float(stack.input.scale)
    if rotary:
        spec.__dict__.pop("position_encodings", None)
    else:
        spec.position_encodings.encodings = make_table(stack, places, config.d_model)
    if stack.norm is not None:
        # A specification is closed, and that of a post-norm model has no place for a last norm; the engine has.
        last = spec.__dict__.setdefault("layer_norm", common.LayerNormSpec(rms_norm=config.norm_kind == "rms"))
        _convert_norm(last, stack.norm)
    if stack.input.norm is not None:
        _convert_norm(spec.layernorm_embedding, stack.input.norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _convert_layer(layer, cast(Block, block), scheme)
    return spec


def make_table(stack: Stack, places: int, d_model: int) -> Any:
    """Make the table of what is added at every position."""
    device = stack.input.tokens.weight.device
    encoding = cast(Scheme, stack.schemes[0]).encode(
        stack.transform_positions(torch.arange(places, device=device)[None], None)
    )
    return np.zeros((places, d_model), np.float32) if encoding is None else _to_array(encoding[0])


def _convert_layer(spec: Any, block: Block, scheme: Scheme) -> None:
    attention = block.attention
    _convert_linear(spec.self_attention.linear[0], attention.qkv)
    _convert_linear(spec.self_attention.linear[1], attention.out)
    spec.self_attention.queries_scale = np.float32(attention.logit_scale(scheme))
    _convert_norm(spec.self_attention.layer_norm, block.attention_residual)
    if block.cross is not None:
        for part, module in zip(spec.attention.linear, (block.cross.q, block.cross.kv, block.cross.out), strict=True):
            _convert_linear(part, module)
        spec.attention.queries_scale = np.float32(block.cross.logit_scale(NoPosition()))
        _convert_norm(spec.attention.layer_norm, block.cross_residual)
    _convert_feed_forward(spec.ffn, block)


def _convert_feed_forward(spec: Any, block: Block) -> None:
    up = block.feed_forward.up
    if block.feed_forward.gated:
        gate, plain = up.weight.chunk(2)
        spec.linear_0.weight, spec.linear_0_noact.weight = _to_array(gate), _to_array(plain)
        if up.bias is not None:
            spec.linear_0.bias, spec.linear_0_noact.bias = map(_to_array, up.bias.chunk(2))
    else:
        _convert_linear(spec.linear_0, up)
    _convert_linear(spec.linear_1, block.feed_forward.down)
    _convert_norm(spec.layer_norm, block.feed_forward_residual)


def _convert_linear(spec: Any, module: nn.Linear) -> None:
    spec.weight = _to_array(module.weight)
    if module.bias is not None:
        spec.bias = _to_array(module.bias)


def _convert_norm(spec: Any, module: nn.Module) -> None:
    norm = cast(Any, module.norm if isinstance(module, ResidualConnection) else module)
    spec.gamma = _to_array(norm.weight)
    if hasattr(spec, "beta"):
        spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else _to_array(norm.bias)


def _to_array(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().numpy()
