"""What the machine is called and what is free, told as the system tells it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest
import torch

from clockhands.machine import describe_machine, describe_processor, measure_free_memory, read_group_allowances


def test_the_memory_of_a_container_is_what_it_is_allowed(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for group, limit, used in ((inner, "max", 100), (inner.parent, "1000", 600)):
        (group / "memory.max").write_text(limit)
        (group / "memory.current").write_text(str(used))
        (group / "memory.stat").write_text("anon 300\ninactive_file 200\n")
    assert list(read_group_allowances(inner)) == [1000 - 600 + 200]
    assert 0 < measure_free_memory(torch.device("cpu")) <= psutil.virtual_memory().total


def test_a_machine_has_a_name_and_cores() -> None:
    assert describe_processor() and describe_machine("cpu") == f"{describe_processor()}, {os.cpu_count()} cores"
    if Path("/proc/cpuinfo").is_file() and "model name" in Path("/proc/cpuinfo").read_text():
        assert f": {describe_processor()}\n" in Path("/proc/cpuinfo").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits of this kind")
def test_a_limited_address_space_is_all_there_is() -> None:
    """In a fork, which ends with its limit: a new process would import PyTorch first."""
    import resource  # late: Windows has none

    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            size = psutil.Process().memory_info().vms + 300 * 2**20
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
            os.write(writing, str(measure_free_memory(torch.device("cpu"))).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    with os.fdopen(reading) as stream:
        assert 200 * 2**20 < int(stream.read()) <= 300 * 2**20
