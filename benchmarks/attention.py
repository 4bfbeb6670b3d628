"""Causal attention with a bias that is a function of positions, against SDPA without one and with a bias tensor.

    python benchmarks/attention.py --lengths 2048 8192

8 heads of 64, batch 1, float32, one thread. ``alibi`` stands against SDPA with a mask made beforehand, forward alone
and with the backward pass; ``t5``, ``kerple``, ``fire`` and ``swin`` (on a grid, not causal), which learn their bias,
against SDPA with the bias laid out, forward and backward (FIRE's network asked for every pair, as papers write it);
past 4096 tokens only their memory is taken. Extra memory is the growth of the resident set at its largest during one
pass, each in a process of its own. What is not asked for stays in the results as it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timing import OURS, RESULTS, interleave, ratio, report
from torch import Tensor

from clockhands import positions
from clockhands.attention import attend
from clockhands.schemes import Alibi, AttentionInputs, Fire, Kerple, Scheme, SwinTable, T5Bias

HEADS, WIDTH = 8, 64
PLAIN, MASK, TABLE = "SDPA, no bias", "SDPA, mask made before", "SDPA, bias laid out"
COLUMNS = 64
SCHEMES: dict[str, Callable[[int], Scheme]] = {
    "alibi": lambda length: Alibi(HEADS),
    "t5": lambda length: T5Bias(HEADS, HEADS * WIDTH),
    "kerple": lambda length: Kerple(HEADS),
    "fire": lambda length: Fire(HEADS),
    "swin": lambda length: SwinTable(HEADS, rows=length // COLUMNS, columns=COLUMNS),
}


class Case:
    """A scheme at one length: queries, keys, values, and every way to attend with it."""

    def __init__(self, name: str, length: int, backward: bool) -> None:
        torch.manual_seed(0)
        self.backward, self.causal, self.learned = backward, name != "swin", name != "alibi"
        grid = positions.make_grid(1, length // COLUMNS, COLUMNS)
        self.pos = positions.count_up(1, length) if self.causal else grid
        self.qkv = [torch.randn(1, HEADS, length, WIDTH, requires_grad=backward) for _ in range(3)]
        self.scheme = SCHEMES[name](length)
        self.mask: Tensor | None = None

    def laid_out(self) -> Tensor:
        """The bias of all pairs, under a causal mask -inf to the right of the query."""
        bias = (
            self.fire()
            if isinstance(self.scheme, Fire)
            else self.scheme.bias(AttentionInputs(*self.qkv[:2], self.pos, self.pos))
        )
        assert bias is not None
        if not self.causal:
            return bias
        lower = torch.ones(bias.shape[-2:], dtype=torch.bool).tril()
        return bias.masked_fill(~lower, -torch.inf)

    def fire(self) -> Tensor:
        """Li et al. 2024, equation 7, as it is written; ours takes the network apart into straight pieces."""
        scheme, pos = self.scheme, self.pos[0].float()
        assert isinstance(scheme, Fire)
        furthest = torch.maximum(pos, (scheme.factor * scheme.length).abs())
        share = scheme.psi(pos[:, None] - pos) / (scheme.psi(furthest)[:, None] + 1e-6)
        return scheme.mlp(share[..., None]).permute(2, 0, 1)[None]

    def finish(self, out: Tensor) -> None:
        if self.backward:
            out.sum().backward()

    def ours(self) -> None:
        self.finish(attend(self.scheme, *self.qkv, self.pos, self.pos, causal=self.causal))

    def plain(self) -> None:
        self.finish(F.scaled_dot_product_attention(*self.qkv, is_causal=self.causal))

    def masked(self) -> None:
        self.mask = self.laid_out() if self.mask is None else self.mask
        self.finish(F.scaled_dot_product_attention(*self.qkv, attn_mask=self.mask))

    def table(self) -> None:
        self.finish(F.scaled_dot_product_attention(*self.qkv, attn_mask=self.laid_out()))

    def ways(self) -> dict[str, Callable[[], None]]:
        other = {TABLE: self.table} if self.learned else {MASK: self.masked}
        return {OURS: self.ours, PLAIN: self.plain, **other}


def extra_memory(name: str, length: int, backward: bool, way: str) -> int:
    """Megabytes that one pass adds to the largest resident set, in a process of its own."""
    command = [sys.executable, __file__, "--memory", name, str(length), str(int(backward)), way]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_memory(name: str, length: int, backward: bool, way: str) -> None:
    """Linux: the peak is set back to what is resident, and read again after one pass."""
    Case(name, 256, backward).ways()[way]()
    case = Case(name, length, backward)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    case.ways()[way]()
    print((resident("VmHWM") - before) // 1024)


def resident(what: str) -> int:
    """A line of /proc/self/status in kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def compare(name: str, length: int, backward: bool, rounds: int) -> dict[str, Any]:
    """Speed and memory of one case. A learned bias of all pairs is left out where it would take some 10 GB."""
    ways = Case(name, length, backward).ways()
    if length > 4096 and name != "alibi":
        return {"extra MB": {way: extra_memory(name, length, backward, way) for way in (OURS, PLAIN)}}
    times = interleave(ways, rounds if length <= 4096 else max(2, rounds - 2))
    return {
        "speed relative to": {way: ratio(times, way) for way in ways if way != OURS},
        "extra MB": {way: extra_memory(name, length, backward, way) for way in ways},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--schemes", nargs="+", choices=list(SCHEMES), default=list(SCHEMES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.memory:
        name, length, backward, way = asked.memory
        return measure_memory(name, int(length), backward == "1", way)
    kept = RESULTS / "attention.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for scheme in asked.schemes:
        for backward in (False, True) if scheme == "alibi" else (True,):
            for length in asked.lengths:
                name = f"{scheme}, {'forward and backward' if backward else 'forward'}, {length}"
                results[name] = compare(scheme, length, backward, asked.rounds)
                print(name, json.dumps(results[name], indent=1), flush=True)
    setting = "batch 1, 8 heads of 64, float32; speeds are the peer's CPU time over ours, round by round"
    report("attention", "python benchmarks/attention.py", setting, results)
    return None


if __name__ == "__main__":
    main()
