"""Estimate, before anything is computed, whether the texts to generate fit the memory."""

from __future__ import annotations

from typing import Annotated, Any

import torch

from clockhands.devices import require_memory
from clockhands.model.kv_cache import find_window
from clockhands.options import Range

Beam = Annotated[int, Range(least=1, most=1024)]
"""Hypotheses of a search. More find no better texts, and with 100,000 a sentence would take hours."""


def estimate_bytes(model: Any, *, batch: int, beam: int, length: int, source_length: int = 0) -> int:
    """Return a lower bound of the memory, in bytes, that a search takes, so that nothing is refused that would fit.

    It is in the type of the weights; ``ctranslate2`` with a smaller ``compute_type`` may take less. There is a time at
    which all states of one layer of the encoder exist, and another at which the KV cache exists with the encoder's
    output: the larger counts. The keys and values of a source are counted once, since its hypotheses may share them.

    Args:
        model: the model that generates, ours or one of transformers.
        batch: the number of sources, or of prompts.
        beam: the number of hypotheses of each.
        length: the tokens of a hypothesis.
        source_length: the tokens of a source; 0: the model has no encoder.
    """
    size = int(next(model.parameters()).element_size())
    if not hasattr(model.config, "transformer_config"):
        names = (
            "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "num_hidden_layers",
            "layer_types", "kv_lora_rank",
        )  # fmt: skip
        text = model.config.get_text_config(decoder=True)
        sizes = {name: getattr(text, name, None) for name in names}
        heads, head_dim = sizes["num_key_value_heads"] or sizes["num_attention_heads"], sizes["head_dim"]
        if head_dim is None and sizes["hidden_size"] and sizes["num_attention_heads"]:
            head_dim = sizes["hidden_size"] // sizes["num_attention_heads"]
        if not isinstance(heads, int) or not isinstance(head_dim, int) or sizes["kv_lora_rank"]:
            return 0  # it does not say its sizes, or caches compressed keys and values
        # Only layers that attend to the whole text are counted; the cache of other layers may be shorter.
        kinds = sizes["layer_types"] or ["full_attention"] * (sizes["num_hidden_layers"] or 0)
        return size * batch * beam * length * 2 * heads * head_dim * int(kinds.count("full_attention"))
    config, decoder = model.config.transformer_config, model.transformer.get_stack("decoder")
    # Where cached keys would be stale, one layer at a time has keys and values.
    layers = config.decoder_layers if decoder.cache_limit is None else 1
    # In self-attention values may have a width of their own, and a layer with a window holds no more tokens than that.
    heads, head_dim = config.resolved_num_kv_heads, config.resolved_head_dim
    windows = [find_window(decoder.schemes.get_scheme(layer)) for layer in range(layers)]
    tokens = sum(length if window is None else min(length, max(window, 1)) for window in windows)
    own = batch * beam * heads * (head_dim + (config.value_dim or head_dim)) * tokens
    # A layer's input, its output, and its inner states; of those of experts only a part exists at a time.
    has_plain_layer = not all(map(config.has_experts, range(config.encoder_layers)))
    encoder_width = 2 * config.d_model + (config.d_ff if has_plain_layer else config.shared_expert_width)
    # The encoder's output, and the keys and values that every layer of the decoder makes of it.
    cached_width = 2 * heads * head_dim * layers + config.d_model
    return size * max(batch * source_length * encoder_width, own + batch * source_length * cached_width)


def check_memory(
    model: Any, device: torch.device, *, batch: int, beam: int, length: int, source_length: int = 0, advice: str
) -> None:
    """Raise UsageError if the texts do not fit the memory that is free on the model's device.

    The sizes are those of ``estimate_bytes``; ``advice`` names the options to lower, such as "batch (--batch)".
    """
    needed = estimate_bytes(model, batch=batch, beam=beam, length=length, source_length=source_length)
    texts, need = ("1 text", "needs") if batch * beam == 1 else (f"{batch * beam:,} texts", "need")
    what = f"{texts} of {max(length, source_length):,} tokens at a time {need}"
    require_memory(needed, what, f"lower {advice}", device)
