"""RoPE and sinusoid tables against the functions people call for them.

python benchmarks/positions.py

What is not asked for stays in the results as it was.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from positional_encodings.torch_encodings import PositionalEncoding1D
from timing import OURS, RESULTS, interleave, report, speedups
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from clockhands import positions
from clockhands.schemes import RoPE, Sinusoidal
from clockhands.schemes.rotary.rotation import Layout, compile_rotation

HEADS, HEAD_DIM = 8, 64
CALLS = 8
FORMS: dict[str, Layout] = {"interleaved": "interleaved", "half": "half", "half compiled": "half"}
SETTING = (
    "RoPE of q and k, batch 1, 8 heads of 64, as split off a projection [B, S, H, K]; cosines and sines are there "
    f"already on both sides; {CALLS} calls a round; table: 8192 x 512 in float32, first call. One thread, CPU time."
)


def rope(length: int, dtype: torch.dtype, layout: Layout, backward: bool, rounds: int) -> dict[str, Any]:
    """Our turn over the function of transformers."""
    q, k, gradient = (torch.randn(1, length, HEADS, HEAD_DIM, dtype=dtype).transpose(1, 2) for _ in range(3))
    pos, scheme = positions.count_up(1, length), RoPE(HEAD_DIM, layout=layout)
    cos, sin = (torch.cat([wave[0], wave[0]], dim=-1).to(dtype) for wave in scheme.compute_cos_sin(pos, torch.float32))

    def contender(turn: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[], object]:
        def run() -> None:
            # Several calls, as the layers of a model make them: after the first, memory is there and pages are mapped.
            for _ in range(CALLS):
                a, b = (x.detach().requires_grad_(backward) for x in (q, k))
                out = turn(a, b)
                if backward:
                    torch.autograd.backward(out, (gradient, gradient))

        return run

    ours = contender(lambda a, b: scheme.rotate(a, b, pos, pos))
    theirs = contender(lambda a, b: apply_rotary_pos_emb(a, b, cos, sin))
    return speedups(interleave({OURS: ours, "transformers": theirs}, rounds, warmup=3))["ours over fastest"]


def tables(rounds: int) -> dict[str, Any]:
    """The first table of a length, and its largest error against float64."""
    length, width = 8192, 512
    pos, x = positions.count_up(1, length), torch.zeros(1, length, width)
    ours, theirs = Sinusoidal(width), lambda: PositionalEncoding1D(width)(x)
    speed = speedups(interleave({OURS: lambda: ours.encode(pos), "positional-encodings": theirs}, rounds))
    far = positions.count_up(1, 512, start=1_000_000)
    return {
        "speed": speed["ours over fastest"],
        "largest error": {OURS: error(ours.encode(pos)[0], pos[0]), "positional-encodings": error(theirs()[0], pos[0])},
        "largest error from position 1,000,000": {OURS: error(ours.encode(far)[0], far[0])},
    }


def error(table: Tensor, pos: Tensor) -> float:
    """Against the paper's formula in float64."""
    omega = torch.exp(-math.log(10_000) * torch.arange(0, table.shape[1], 2, dtype=torch.float64) / table.shape[1])
    angle = pos.double()[:, None] * omega
    return float((table.double() - torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    asked = parser.parse_args()
    rounds, kept = asked.rounds, RESULTS / "positions.json"
    torch.set_num_threads(1)
    results: dict[str, Any] = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for form in asked.forms:
        layout = FORMS[form]
        compile_rotation(form == "half compiled")
        for length, dtype, backward in product(asked.lengths, (torch.float32, torch.bfloat16), (False, True)):
            name = f"RoPE {form}, {length}, {dtype}, {'forward and backward' if backward else 'forward'}"
            results[name] = rope(length, dtype, layout, backward, rounds)
    results["sinusoid table"] = tables(max(rounds // 4, 3))
    report("positions", "python benchmarks/positions.py", SETTING, results)


if __name__ == "__main__":
    main()
