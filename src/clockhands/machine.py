"""The machine: its name, without which seconds mean nothing, and how much memory is free, in a container too."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

_GROUPS = Path("/sys/fs/cgroup")


def processor() -> str:
    """The processor's name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine(device: str) -> str:
    """Processor and cores, and the accelerator where the device is one."""
    beside = f", {torch.cuda.get_device_name(device)}" if device.startswith("cuda") else ""
    return f"{processor()}, {os.cpu_count()} cores{beside}"


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had there; in a container, or under ``ulimit -v``, no more than is allowed."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min([int(psutil.virtual_memory().available), *allowances(_own_group()), *own_allowance()])


def in_words(size: int) -> str:
    """Write a number of bytes with the unit that suits it: ``1.5 GiB``."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min(max(size.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{size} bytes" if power == 0 else f"{size / 2 ** (10 * power):,.1f} {units[power]}"


def allowances(group: Path) -> Iterator[int]:
    """Bytes that a control group (version 2) and those above it may still take, for each that has a limit.

    Pages of files do not count as taken: they are dropped when memory is wanted.
    """
    for each in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError):
            limit = int((each / "memory.max").read_text())
            counts = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
            yield max(limit - int((each / "memory.current").read_text()) + int(counts.get("inactive_file", 0)), 0)


def own_allowance() -> Iterator[int]:
    """Bytes that this process may still map, where its address space is limited (``ulimit -v``)."""
    with contextlib.suppress(ImportError):  # Windows has no such limits, and no such module.
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield max(limit - int(psutil.Process().memory_info().vms), 0)


def _own_group() -> Path:
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        return _GROUPS / next((each[3:].lstrip("/") for each in lines if each.startswith("0::")), "")
    return _GROUPS
