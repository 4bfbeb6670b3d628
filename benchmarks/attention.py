"""Causal attention with a bias that is a function of the distance, against SDPA without one and with a bias tensor.

    python benchmarks/attention.py --lengths 2048 8192

8 heads of 64, batch 1, float32, one thread. ``alibi``: forward, against plain causal SDPA and SDPA with a mask made
beforehand. ``t5``: forward and backward with a learned table, against SDPA with the table laid out. Extra memory is the
growth of the resident set at its largest during one pass, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import OURS, interleave, ratio, report
from torch import Tensor

from clockhands import positions
from clockhands.schemes import Alibi, DistanceBias, T5Bias, attend

HEADS, WIDTH = 8, 64
PLAIN, MASK, TABLE = "SDPA, no bias", "SDPA, mask made before", "SDPA, bias laid out"


class Case:
    """One length: queries, keys, values, a scheme, and every way to attend with it."""

    def __init__(self, length: int, learned: bool) -> None:
        torch.manual_seed(0)
        self.learned, self.pos = learned, positions.sequential(1, length)
        self.qkv = [torch.randn(1, HEADS, length, WIDTH, requires_grad=learned) for _ in range(3)]
        self.scheme: DistanceBias = T5Bias(HEADS, HEADS * WIDTH) if learned else Alibi(HEADS)
        self.mask: Tensor | None = None

    def laid_out(self) -> Tensor:
        """The bias of all pairs, -inf to the right of the query."""
        bias = self.scheme.bias(*self.qkv[:2], self.pos, self.pos)
        lower = torch.ones(bias.shape[-2:], dtype=torch.bool).tril()
        return bias.masked_fill(~lower, -torch.inf)

    def finish(self, out: Tensor) -> None:
        if self.learned:
            out.sum().backward()

    def ours(self) -> None:
        self.finish(attend(self.scheme, *self.qkv, self.pos, self.pos, causal=True))

    def plain(self) -> None:
        self.finish(F.scaled_dot_product_attention(*self.qkv, is_causal=True))

    def masked(self) -> None:
        self.mask = self.laid_out() if self.mask is None else self.mask
        self.finish(F.scaled_dot_product_attention(*self.qkv, attn_mask=self.mask))

    def table(self) -> None:
        self.finish(F.scaled_dot_product_attention(*self.qkv, attn_mask=self.laid_out()))

    def ways(self) -> dict[str, Callable[[], None]]:
        peers = {PLAIN: self.plain, TABLE: self.table} if self.learned else {PLAIN: self.plain, MASK: self.masked}
        return {OURS: self.ours, **peers}


def extra_memory(length: int, learned: bool, way: str) -> int:
    """Megabytes that one pass adds to the largest resident set, in a process of its own."""
    command = [sys.executable, __file__, "--memory", str(length), str(int(learned)), way]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_memory(length: int, learned: bool, way: str) -> None:
    """Linux: the peak is set back to what is resident, and read again after one pass."""
    Case(256, learned).ways()[way]()
    case = Case(length, learned)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    case.ways()[way]()
    print((resident("VmHWM") - before) // 1024)


def resident(what: str) -> int:
    """A line of /proc/self/status in kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.memory:
        return measure_memory(int(asked.memory[0]), asked.memory[1] == "1", asked.memory[2])
    results = {}
    for learned in (False, True):
        for length in asked.lengths:
            ways = Case(length, learned).ways()
            if length > 4096 and learned:
                ways.pop(TABLE)
            times = interleave(ways, asked.rounds if length <= 4096 else max(2, asked.rounds - 2))
            name = f"{'t5, forward and backward' if learned else 'alibi, forward'}, {length}"
            results[name] = {
                "speed relative to": {way: ratio(times, way) for way in ways if way != OURS},
                "extra MB": {way: extra_memory(length, learned, way) for way in ways},
            }
            print(name, json.dumps(results[name], indent=1), flush=True)
    setting = "batch 1, 8 heads of 64, causal, float32; speeds are the peer's CPU time over ours, round by round"
    report("attention", "python benchmarks/attention.py", setting, results)
    return None


if __name__ == "__main__":
    main()
