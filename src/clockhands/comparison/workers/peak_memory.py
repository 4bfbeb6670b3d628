"""Peak memory of one trial: of the GPU where one computes, else of this process."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> None:
    """Forget earlier peaks, where the system can (CUDA, Linux)."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        CLEAR.write_text("5")  # proc(5): resets the peak resident set size
    except OSError:
        return


def read_peak_mebibytes() -> float:
    """Return the peak since ``reset_peak``: allocated on the GPU, or resident in this process and its libraries."""
    if torch.cuda.is_available():
        return round(torch.cuda.max_memory_allocated() / 2**20, 1)
    try:
        line = next(text for text in STATUS.read_text().splitlines() if text.startswith("VmHWM"))
        return round(int(line.split()[1]) / 1024, 1)
    except (OSError, StopIteration):
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
