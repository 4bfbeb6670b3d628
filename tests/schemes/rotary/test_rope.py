"""Rotary positions: what only learned frequencies need."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.attention import attend
from clockhands.schemes import RoPE


def compute(dtype: torch.dtype, start: int, *, same: bool, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The output of attention, and the gradient of the learned frequencies, in float64."""
    generator = torch.Generator().manual_seed(3)
    rope = RoPE(head_dim=32, learned=True, **options)
    rope.alpha_F.data.normal_(0, 0.05, generator=generator)  # type: ignore[union-attr]
    q, k, v, w = (torch.randn(2, 3, 48, 32, generator=generator, dtype=torch.float64).to(dtype) for _ in range(4))
    qpos = start + torch.arange(48).repeat(2, 1)
    kpos = qpos if same else qpos.clone()
    out = attend(rope, q, k, v, qpos, kpos, causal=True)
    (out * w).sum().backward()
    return out.detach().double(), rope.alpha_F.grad.double()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "options", [{}, {"values": True}, {"spectrum": "linear", "factor": 4.0}, {"layout": "interleaved"}], ids=str
)
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("start", [0, 99_000, 10_000_000])
def test_learned_frequencies_have_the_gradient_of_float64_at_every_position(
    start: int, same: bool, options: dict[str, Any]
) -> None:
    out, gradient = compute(torch.float32, start, same=same, **options)
    exact_out, exact = compute(torch.float64, start, same=same, **options)
    assert (out - exact_out).abs().max() < 1e-5
    assert (gradient - exact).norm() < 2e-6 * exact.norm()
    # Only distances matter, so that nothing depends on where the text begins.
    near_out, near = compute(torch.float64, 0, same=same, **options)
    assert (exact_out - near_out).abs().max() < 1e-6 and (exact - near).norm() < 1e-6 * exact.norm()
