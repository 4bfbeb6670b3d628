"""Check by arithmetic, before anything is computed, whether the texts to write fit the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clockhands.errors import UsageError
from clockhands.machine import free_memory, in_words

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def count_bytes(model: PreTrainedModel, *, rows: int, length: int, source: int = 0) -> int:
    """Count the bytes that ``rows`` texts of ``length`` tokens, of sources of ``source`` tokens, need at the least.

    Counted are the keys and values of every layer, and one layer's states of the longer side; not what is computed in
    between, so that nothing is refused that would have fitted.
    """
    core = model.config.core
    itemsize = next(model.parameters()).element_size()
    keys = 2 * core.kv_heads * core.d_head * core.decoder_layers * (length + source)
    states = max(length, source) * (2 * core.d_model + core.d_ff if source else core.d_model)
    return rows * itemsize * (keys + states)


def check_memory(model: PreTrainedModel, *, rows: int, length: int, source: int = 0, advice: str) -> None:
    """Raise UsageError if so many texts of so many tokens do not fit; ``advice``: what to lower."""
    needed, available = count_bytes(model, rows=rows, length=length, source=source), free_memory(model.device)
    if needed > available:
        raise UsageError(
            f"{rows:,} texts of {max(length, source):,} tokens at a time need {in_words(needed)} of memory, and "
            f"{in_words(available)} are free; lower {advice}"
        )
