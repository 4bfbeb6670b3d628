"""A window beside RoPE against either alone, and what sinks add to RoPE and to both.

python benchmarks/layouts.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from timing import interleave, ratio, report

from clockhands import positions
from clockhands.attention import attend
from clockhands.schemes import Composition, NoPosition, RoPE, Scheme, Sinks, Window

HEADS, HEAD_DIM, LEFT = 8, 64, 127
SETTING = (
    f"attention with its rotation, causal, batch 1, {HEADS} heads of {HEAD_DIM}, float32, a window of {LEFT + 1} "
    "tokens; forward, and forward with backward. One thread, CPU time; a ratio is the other's time over that of both "
    "side by side, or that with sinks over that without"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    results = {
        f"{length} tokens, {'with backward' if backward else 'forward'}": measure(length, backward, rounds)
        for length in (512, 2048)
        for backward in (False, True)
    }
    report("layouts", "python benchmarks/layouts.py", SETTING, results)


def measure(length: int, backward: bool, rounds: int) -> dict[str, Any]:
    """Return how many times longer a window alone, RoPE alone and neither take than both, and sinks than none."""
    q, k, v = (torch.randn(1, HEADS, length, HEAD_DIM) for _ in range(3))
    pos, gradient = positions.count_up(1, length), torch.randn(1, HEADS, length, HEAD_DIM)
    rope, window, sinks = RoPE(HEAD_DIM), Window(HEADS, left=LEFT), Sinks(HEADS)

    def attending(scheme: Scheme) -> Callable[[], object]:
        def run() -> None:
            leaves = [x.detach().requires_grad_(backward) for x in (q, k, v)]
            out = attend(scheme, *leaves, pos, pos, causal=True)
            if backward:
                out.backward(gradient)

        return run

    schemes = {
        "both": Composition(schemes=[rope, window]), "window": window, "rope": rope, "none": NoPosition(),
        "both and sinks": Composition(schemes=[rope, window, sinks]),
        "rope and sinks": Composition(schemes=[rope, sinks]),
    }  # fmt: skip
    times = interleave({name: attending(scheme) for name, scheme in schemes.items()}, rounds, warmup=2)
    pairs = [(name, "both") for name in ("window", "rope", "none")]
    pairs += [(f"{name} and sinks", name) for name in ("both", "rope")]
    return {f"{more} over {less}": ratio(times, more, less) for more, less in pairs}


if __name__ == "__main__":
    main()
