"""Estimate, before anything is computed, whether the texts to generate fit the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from clockhands.devices import require_memory
from clockhands.model import Transformer
from clockhands.model.kv_cache import find_window
from clockhands.runs.plain import PlainModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def estimate_bytes(
    model: PreTrainedModel | PlainModel, *, batch: int, beam: int, length: int, source_length: int = 0
) -> int:
    """Return a lower bound of the memory, in bytes, that a search takes, so that nothing is refused that would fit.

    The bound is for a search in the type of the weights; ``ctranslate2`` with a smaller ``compute_type`` may take less.
    With any engine there is a time at which all states of one layer of the encoder exist, and another at which the KV
    caches of the decoder exist together with the encoder's output; the bound is the larger of these two. The keys and
    values of a source are counted once, since its hypotheses may share them.

    Args:
        model: the model that generates, ours or one of transformers.
        batch: the number of sources, or of prompts.
        beam: the number of hypotheses of each.
        length: the tokens of a hypothesis.
        source_length: the tokens of a source; 0: the model has no encoder.
    """
    if not hasattr(model.config, "transformer_config"):
        return _estimate_foreign_bytes(cast("PreTrainedModel", model), batch * beam * length)
    config = model.config.transformer_config
    decoder = cast(Transformer, cast(Any, model).transformer).get_stack("decoder")
    # Where cached keys would be stale, one layer at a time has keys and values.
    layers = config.decoder_layers if decoder.cache_limit is None else 1
    # Numbers in the keys and values of a token. In self-attention values may have a width of their own.
    heads, head_dim = config.resolved_num_kv_heads, config.resolved_head_dim
    numbers_per_layer = heads * (head_dim + (config.value_dim or head_dim))
    # A layer's input, its output, and its inner states; of those of experts only a part exists at a time.
    has_plain_layer = not all(map(config.has_experts, range(config.encoder_layers)))
    inner_width = config.d_ff if has_plain_layer else config.shared_expert_width
    encoder_numbers = batch * source_length * (2 * config.d_model + inner_width)
    # A layer's cache holds all tokens of a text, or those of its window.
    windows = [find_window(decoder.schemes.get_scheme(layer)) for layer in range(layers)]
    tokens = sum(length if window is None else min(length, max(window, 1)) for window in windows)
    decoder_numbers = batch * beam * numbers_per_layer * tokens
    decoder_numbers += batch * source_length * (2 * heads * head_dim * layers + config.d_model)
    return int(next(model.parameters()).element_size() * max(encoder_numbers, decoder_numbers))


def _estimate_foreign_bytes(model: PreTrainedModel, tokens: int) -> int:
    """Return the bytes of the KV cache of a model of transformers; 0 if its configuration does not say its sizes.

    Only layers that attend to the whole text are counted; the cache of other layers may be shorter. A model that caches
    compressed keys and values (``kv_lora_rank``) counts as 0, too.
    """
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
    head_dim = getattr(config, "head_dim", None)
    if head_dim is None and getattr(config, "hidden_size", None) and getattr(config, "num_attention_heads", None):
        head_dim = config.hidden_size // config.num_attention_heads
    layer_types = getattr(config, "layer_types", None) or ["full_attention"] * getattr(config, "num_hidden_layers", 0)
    layers = layer_types.count("full_attention")
    if not isinstance(heads, int) or not isinstance(head_dim, int) or getattr(config, "kv_lora_rank", None):
        return 0
    return int(next(model.parameters()).element_size() * tokens * 2 * heads * head_dim * layers)


def check_memory(
    model: PreTrainedModel | PlainModel,
    *,
    batch: int,
    beam: int,
    length: int,
    source_length: int = 0,
    advice: str,
) -> None:
    """Raise UsageError if the texts do not fit the memory that is free on the model's device.

    The sizes are those of ``estimate_bytes``; ``advice`` names the options to lower, such as "batch (--batch)".
    """
    needed = estimate_bytes(model, batch=batch, beam=beam, length=length, source_length=source_length)
    texts, need = ("1 text", "needs") if batch * beam == 1 else (f"{batch * beam:,} texts", "need")
    what = f"{texts} of {max(length, source_length):,} tokens at a time {need}"
    if isinstance(model, PlainModel):
        device = model.device
    else:
        from clockhands.models.streaming import find_device  # late, as transformers is with it

        device = find_device(model)
    require_memory(needed, what, f"lower {advice}", device)
