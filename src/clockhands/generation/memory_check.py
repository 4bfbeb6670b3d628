"""Check by arithmetic, before anything is computed, whether the texts to write fit the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clockhands.errors import UsageError
from clockhands.generation.engines.hypotheses import depends_on_length
from clockhands.machine import format_bytes, measure_free_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def estimate_bytes(model: PreTrainedModel, *, batch: int, beam: int, length: int, source: int = 0) -> int:
    """Return the least memory, in bytes, in which ``beam`` hypotheses of each of ``batch`` texts can be written.

    A text has ``length`` tokens, its source has ``source`` tokens (0: the model has no encoder). Counted are tensors
    that exist at the same time whatever the engine, so that nothing is refused that would have fitted: one layer of
    the encoder, or else the KV caches and the encoder's output. The hypotheses of a source may share its keys.
    """
    core = model.config.core
    # Where nothing can be cached, one layer at a time has keys and values.
    layers = 1 if depends_on_length(model.model) else core.decoder_layers
    keys = 2 * core.kv_heads * core.d_head * layers
    encoding = batch * source * (2 * core.d_model + core.d_ff)  # a layer's input, its output, and its inner states
    decoding = batch * beam * length * keys + batch * source * (keys + core.d_model)
    return int(next(model.parameters()).element_size() * max(encoding, decoding))


def check_memory(model: PreTrainedModel, *, batch: int, beam: int, length: int, source: int = 0, advice: str) -> None:
    """Raise UsageError if so many texts of so many tokens do not fit; ``advice``: what to lower."""
    needed = estimate_bytes(model, batch=batch, beam=beam, length=length, source=source)
    available = measure_free_memory(model.device)
    if needed > available:
        raise UsageError(
            f"{batch * beam:,} texts of {max(length, source):,} tokens at a time need {format_bytes(needed)} of "
            f"memory, and {format_bytes(available)} are free; lower {advice}"
        )
