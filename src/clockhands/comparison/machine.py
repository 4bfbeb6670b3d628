"""What a trial ran on: seconds mean nothing without it."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path

import torch


@lru_cache(maxsize=2)
def machine(device: str) -> str:
    """Processor and cores, and the accelerator where the device is one."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    beside = f", {torch.cuda.get_device_name(device)}" if device.startswith("cuda") else ""
    return f"{processor}, {os.cpu_count()} cores{beside}"
