"""Estimate, before anything is computed, whether the texts to generate fit the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from clockhands.errors import UsageError
from clockhands.generation.engines.hypothesis_decoder import must_reread_text
from clockhands.machine import format_bytes, measure_free_memory
from clockhands.model import Transformer
from clockhands.runs.streaming import find_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["check_memory", "estimate_bytes"]


def estimate_bytes(
    model: PreTrainedModel, *, batch: int, beam: int, length: int, source: int = 0, shared: bool = False
) -> int:
    """Return a lower bound of the memory, in bytes, that ``beam`` hypotheses of each of ``batch`` texts take.

    A text has ``length`` tokens and its source ``source`` tokens (0: the model has no encoder). Only tensors that exist
    at the same time with every engine are counted, so that nothing is refused that would fit: those of one layer of the
    encoder, or the KV caches and the encoder's output. The hypotheses of a source may share its keys. With ``shared``
    they share one cache, under a mask that says for each one which of the tokens of all it consists of.
    """
    if not hasattr(model.config, "transformer_config"):
        return _estimate_foreign_bytes(model, batch * beam * length)
    config = model.config.transformer_config
    # If nothing can be cached, one layer at a time has keys and values.
    decoder = cast(Transformer, model.transformer).get_stack("decoder")
    layers = 1 if must_reread_text(decoder) else config.decoder_layers
    numbers_per_token = 2 * config.resolved_num_kv_heads * config.resolved_head_dim * layers  # in its keys and values
    # A layer's input, its output, and its inner states.
    encoder_numbers = batch * source * (2 * config.d_model + config.d_ff)
    decoder_numbers = batch * beam * length * numbers_per_token + batch * source * (numbers_per_token + config.d_model)
    mask = batch * beam * beam * length if shared and beam > 1 else 0  # a byte for each
    return int(next(model.parameters()).element_size() * max(encoder_numbers, decoder_numbers) + mask)


def _estimate_foreign_bytes(model: PreTrainedModel, tokens: int) -> int:
    """Return the bytes of the KV cache of a model of transformers; 0 if its configuration does not say its sizes.

    Only layers that attend to the whole text are counted; the cache of other layers may be shorter.
    """
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
    width = getattr(config, "head_dim", None)
    if width is None and getattr(config, "hidden_size", None) and getattr(config, "num_attention_heads", None):
        width = config.hidden_size // config.num_attention_heads
    layer_types = getattr(config, "layer_types", None) or ["full_attention"] * getattr(config, "num_hidden_layers", 0)
    layers = layer_types.count("full_attention")
    if not isinstance(heads, int) or not isinstance(width, int) or getattr(config, "kv_lora_rank", None):
        return 0
    return int(next(model.parameters()).element_size() * tokens * 2 * heads * width * layers)


def check_memory(
    model: PreTrainedModel,
    *,
    batch: int,
    beam: int,
    length: int,
    source: int = 0,
    shared: bool = False,
    advice: str,
) -> None:
    """Raise UsageError if the texts do not fit the memory that is free on the model's device.

    The sizes are those of ``estimate_bytes``; ``advice`` names the options to lower.
    """
    needed = estimate_bytes(model, batch=batch, beam=beam, length=length, source=source, shared=shared)
    available = measure_free_memory(find_device(model))
    if needed > available:
        texts, need = ("1 text", "needs") if batch * beam == 1 else (f"{batch * beam:,} texts", "need")
        raise UsageError(
            f"{texts} of {max(length, source):,} tokens at a time {need} {format_bytes(needed)} of memory, and "
            f"{format_bytes(available)} are free; lower {advice}"
        )
