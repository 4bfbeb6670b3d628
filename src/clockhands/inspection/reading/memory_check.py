"""Whether reading a model on windows fits the memory: judged by arithmetic before anything is computed."""

from __future__ import annotations

import torch

from clockhands.devices import require_memory
from clockhands.inspection.estimators.position_sums import TEXT_GROUPS
from clockhands.inspection.reading.capture import BATCH
from clockhands.inspection.reading.windows import Windows
from clockhands.models.subject import Subject

COPIES = 3
"""Numbers kept for each pair of tokens, in every text of a batch and every head: product, logit and weight."""


def count_bytes(heads: int, windows: Windows) -> tuple[int, int]:
    """Return the fewest bytes that one layer of ``heads`` heads needs: where the model computes, and on the CPU.

    Counted are ``COPIES`` numbers for each pair of tokens in one batch and, in float64, the sums of attention over
    texts; not what is computed in between, so that nothing is refused that would have fitted.
    """
    texts, length = windows.ids_NT.shape
    pairs = heads * length**2
    return 4 * COPIES * min(BATCH, texts) * pairs, 8 * TEXT_GROUPS * pairs


def check_memory(subject: Subject, windows: Windows) -> None:
    """Raise UsageError if the attention of one layer over these windows does not fit the memory."""
    device, cpu = subject.device, torch.device("cpu")
    where_computed, on_cpu = count_bytes(subject.num_heads, windows)
    needs = {cpu: where_computed + on_cpu} if device.type == "cpu" else {device: where_computed, cpu: on_cpu}
    for where, needed in needs.items():
        what = (
            f"the attention of a layer on {len(windows.ids_NT):,} windows of {windows.ids_NT.shape[1]:,} tokens needs"
        )
        require_memory(needed, what, "lower --length (length=...)", where)
