"""A training step of the paper's architecture, small, against what others use for it: real target words a CPU second.

python benchmarks/training_step.py
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from peers import LIBRARIES, Size, make_step, over, random_pairs
from timing import interleave, report, speedups

SETTING = (
    "d=256, ff 1024, 3+3 layers, 4 heads, V 8000; 64 pairs of 26 to 32 words each side (9 % padding); forward, "
    "cross-entropy with label smoothing 0.1, backward, clipping, fused AdamW; dropout 0; the sizes of studies: ff 128, "
    "9 to 12 words"
)


CASES = {
    "bf16": (Size(), True, 32),
    "fp32": (Size(), False, 32),
    "fp32, d=64, 2+2 layers, V 137": (Size(64, 128, 4, 2, 137), False, 12),
    "fp32, d=64, 1+1 layers, V 137": (Size(64, 128, 4, 1, 137), False, 12),
}
"""Sizes, whether in bf16, and the words of a side at most; the last two are those of the studies."""


def measure(size: Size, bf16: bool, length: int, rounds: int, steps: int) -> dict[str, Any]:
    """Words a second of each library, and the ratios."""
    torch.manual_seed(1)
    batches = [random_pairs(size, rows=64, length=length, shortest=length * 26 // 32)] * steps
    contenders = {name: over(make_step(name, size, bf16), batches) for name in LIBRARIES}
    times = interleave(contenders, rounds)
    words = batches[0].real * steps
    rates = {name: round(words / statistics.median(taken)) for name, taken in times.items()}
    return {"target words per CPU second": rates, **speedups(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2, help="steps of a contender in a round")
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = {name: measure(*case, given.rounds, given.steps) for name, case in CASES.items()}
    setting = f"{SETTING}; {given.rounds} rounds of {given.steps} steps"
    report("training_step", "python benchmarks/training_step.py", setting, results)


if __name__ == "__main__":
    main()
