"""The device to compute on: found by its name, or refused with one message before anything is read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from clockhands.errors import UsageError
from clockhands.machine import format_bytes, measure_free_memory


def open_device(name: str, source: str) -> torch.device:
    """Return the device ``name`` (``cpu``, ``cuda``, ``cuda:1``, ...), after putting a tensor on it.

    ``source`` says, for the message, where the name was given, such as ``--device``. Raises UsageError if PyTorch does
    not know the device, if it is not in this machine, or if it stores no numbers (``meta``).
    """
    try:
        device = torch.device(name)
    except RuntimeError as fault:
        raise UsageError(f"{source} is {name!r}, which PyTorch does not know; use cpu, cuda or cuda:1") from fault
    if device.type == "cuda" and not torch.cuda.is_available():
        why = "finds no GPU" if torch.version.cuda or torch.version.hip else "was built without CUDA"
        raise UsageError(
            f"{source} is {name!r}, but there is no CUDA device: PyTorch {torch.__version__} {why}; use cpu"
        )
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        reason = next(iter(str(fault).splitlines()), type(fault).__name__)
        raise UsageError(f"{source} is {name!r}, which cannot be used here: {reason}") from fault
    return device


def choose_device(name: str | None, source: str = "device") -> torch.device:
    """Open the device ``name`` as ``open_device``; None stands for the GPU if there is one, else for the CPU."""
    return open_device(name or ("cuda" if torch.cuda.is_available() else "cpu"), source)


def read_dtype(name: str) -> torch.dtype:
    """Return the type of numbers of that name. Raises UsageError for one that holds no fractions."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise UsageError(f"unknown dtype {name!r}: use float32, float64, bfloat16 or float16")
    return dtype


def check_threads(count: int, name: str) -> None:
    """Raise UsageError for a number of threads (or processes) that is below 1, or that only slows this machine down.

    ``name`` is that of the option, for the message.
    """
    most = max(64, 4 * (os.cpu_count() or 1))
    if not 1 <= count <= most:
        least = "it must be 1 or more" if count < 1 else f"{most} are the most that help on {os.cpu_count()} cores"
        raise UsageError(f"{name} is {count}; {least}")


def get_rank() -> int:
    """Return the number of this process among those that torchrun or accelerate started; 0 if it is the only one."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads inside, and with as many as before afterwards; None changes nothing."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def require_memory(needed: int, what: str, advice: str, device: torch.device | None = None) -> None:
    """Raise UsageError if fewer than ``needed`` bytes are free on a device (default: the processor).

    ``what`` begins the message, such as "64 texts need", and ``advice`` ends it, such as "lower batch (--batch)".
    """
    available = measure_free_memory(device)
    if needed > available:
        raise UsageError(f"{what} {format_bytes(needed)} of memory, and {format_bytes(available)} are free; {advice}")
