"""Compile attention with each scheme named on the command line, at two lengths, and compare with eager."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from clockhands.attention import attend
from clockhands.schemes import CATALOGUE, Sizes, build

HEADS, LENGTH, HEAD_DIM = 4, 9, 8


def check(name: str) -> None:
    scheme = build(CATALOGUE, name, Sizes(32, 32, HEADS, HEAD_DIM)).eval()

    def both(q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> tuple[Tensor, Tensor | None]:
        return attend(scheme, q, k, v, pos, pos, causal=True), scheme.encode(pos)

    torch.compiler.reset()
    compiled = torch.compile(both, backend="aot_eager", dynamic=True, fullgraph=True)
    for length in (LENGTH, LENGTH - 2):
        q, k, v = (torch.randn(2, HEADS, length, HEAD_DIM) for _ in range(3))
        pos = torch.arange(length).expand(2, length)
        for got, wanted in zip(compiled(q, k, v, pos), both(q, k, v, pos), strict=True):
            if wanted is not None:
                torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    print(name)


for scheme_name in sys.argv[1:]:
    check(scheme_name)
