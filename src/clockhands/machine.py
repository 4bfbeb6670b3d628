"""The machine that computes: the names of its processor and GPU, and how much of its memory is free."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch

_GROUPS = Path("/sys/fs/cgroup")
"""Where Linux shows the limits of control groups, by which containers are bounded."""


def describe_processor() -> str:
    """Return the name of the processor, or its architecture where the system has no name for it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def describe_machine(device: str) -> str:
    """Return the processor, its number of cores, and the GPU if ``device`` (``cpu``, ``cuda:0``) is one."""
    import torch

    gpu = f", {torch.cuda.get_device_name(device)}" if device.startswith("cuda") else ""
    return f"{describe_processor()}, {os.cpu_count()} cores{gpu}"


def measure_free_memory(device: torch.device | None = None) -> int:
    """Return how many bytes of the memory of a device (default: the processor) this process can still take.

    Limits of a container and of ``ulimit -v`` count.

    The free memory of other devices than CUDA is that of the processor.
    """
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    group = _GROUPS
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        group = _GROUPS / next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
    free = [int(psutil.virtual_memory().available), *read_group_allowances(group)]
    with contextlib.suppress(ImportError):  # Windows has no limits of address spaces, and no such module.
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            free.append(max(limit - int(psutil.Process().memory_info().vms), 0))
    return min(free)


def format_bytes(size: int) -> str:
    """Return a number of bytes with the unit that suits it, such as ``1.5 GiB``."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min(max(size.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{size} bytes" if power == 0 else f"{size / 2 ** (10 * power):,.1f} {units[power]}"


def read_group_allowances(group: Path) -> Iterator[int]:
    """Yield how many bytes a control group (version 2) and those above it may still take, for each with a limit.

    Pages of files do not count as taken: the system drops them when memory is needed.
    """
    for folder in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError):  # no limit ("max"), or no such files
            limit = int((folder / "memory.max").read_text())
            counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            yield max(limit - int((folder / "memory.current").read_text()) + int(counts.get("inactive_file", 0)), 0)
