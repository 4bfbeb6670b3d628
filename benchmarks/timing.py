"""Interleaved measurements: every contender once a round, CPU time, one thread; ratios within a round are compared.

A shared machine changes its speed from second to second, so times of different runs say little. Two contenders of
one round meet nearly the same machine; the median of their ratios over the rounds is what the benchmarks report.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

OURS = "clockhands"
RESULTS = Path(__file__).parent / "results"
Times = dict[str, list[float]]


def measure_cpu_time(work: Callable[[], object]) -> float:
    """CPU seconds of a piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    warmup: int = 1,
    measure: Callable[[Callable[[], object]], float] = measure_cpu_time,
) -> Times:
    """Seconds of each contender in each round, by a clock. The order turns by one from round to round."""
    names = list(contenders)
    times: Times = {name: [] for name in names}
    for turn in range(-warmup, rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds = measure(contenders[name])
            if turn >= 0:
                times[name].append(seconds)
    return times


def speedups(times: Times) -> dict[str, Any]:
    """How many times faster ours is than each peer, and than the fastest of them (by median time)."""
    peers = [name for name in times if name != OURS]
    fastest = min(peers, key=lambda name: statistics.median(times[name]))
    return {"fastest peer": fastest, "ours over fastest": ratio(times, fastest),
            "ours over each": {name: ratio(times, name) for name in peers}}  # fmt: skip


def ratio(times: Times, peer: str, mine: str = OURS) -> dict[str, float]:
    """Median, lowest and highest of the peer's time over mine, round by round."""
    ratios = [theirs / ours for theirs, ours in zip(times[peer], times[mine], strict=True)]
    return {"median": round(statistics.median(ratios), 3), "low": round(min(ratios), 3), "high": round(max(ratios), 3)}


def machine(
    libraries: Sequence[str] = ("torch", "transformers", "x-transformers", "ctranslate2"),
) -> dict[str, Any]:
    """Where the figures were taken, with the versions of these libraries."""
    from importlib.metadata import version

    import torch

    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads used": torch.get_num_threads(),
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }


def processor() -> str:
    """The processor's name, and whether it multiplies bfloat16."""
    from clockhands.machine import describe_processor as name

    info = Path("/proc/cpuinfo")
    return name() + (" with AVX512-BF16" if info.exists() and "avx512_bf16" in info.read_text() else "")


def report(name: str, command: str, setting: str, results: Mapping[str, Any]) -> None:
    """Print the results and write ``results/<name>.json``."""
    RESULTS.mkdir(exist_ok=True)
    table = {"command": command, "setting": setting, "machine": machine(), "results": results}
    text = json.dumps(table, indent=2, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf8")
    print(text)
