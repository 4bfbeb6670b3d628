"""Inkling's relative logits against transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import InklingTextConfig
from transformers.models.inkling import modeling_inkling
from transformers.models.inkling.modeling_inkling import InklingRelativeLogits

from clockhands import positions
from clockhands.schemes import AttentionInputs, Inkling
from tests.schemes.peers import agree, copied, leaf


def test_logits_and_their_gradients_are_those_of_transformers() -> None:
    heads, rank, extent, length, width = 3, 4, 6, 10, 12
    ours, theirs = Inkling(width, heads, rank=rank, extent=extent), InklingRelativeLogits(rank, extent)
    with torch.no_grad():
        theirs.proj.copy_(ours.basis_GR.normal_())
    x = leaf(2, length, width)
    y, mixture = copied(x), copied(ours.mixture_GD)
    q, k, pos = torch.zeros(2, heads, 4, 8), torch.zeros(2, heads, length, 8), positions.count_up(2, length)

    def mine() -> torch.Tensor:
        own = ours.locate(x, pos, None)
        return ours.bias(AttentionInputs(q, k, own[:, :, -4:], own))

    def peer() -> torch.Tensor:
        states = (y @ mixture.T).unflatten(-1, (heads, rank))
        return theirs(states[:, -4:], pos[0, -4:], pos[0])

    agree(mine, peer, [(x, y), (ours.mixture_GD, mixture), (ours.basis_GR, theirs.proj)], atol=1e-5)


def test_tau_is_that_of_transformers_on_queries_and_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its attention is handed, with tau and without."""
    length, heard = 12, []

    def listen(module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, **more: Any) -> Any:
        heard.append((q, more["position_bias"]))
        return v.transpose(1, 2), None

    monkeypatch.setattr(modeling_inkling, "eager_attention_forward", listen)
    x, pos = torch.randn(1, length, 24), positions.count_up(1, length)
    for floor in (None, 3):
        config = InklingTextConfig(
            hidden_size=24, num_attention_heads=3, num_key_value_heads=3, head_dim=8, d_rel=4, rel_extent=6,
            log_scaling_n_floor=floor, log_scaling_alpha=0.4, num_hidden_layers=1, layer_types=["hybrid"],
        )  # fmt: skip
        config._attn_implementation = "eager"
        torch.manual_seed(0)
        theirs = modeling_inkling.InklingAttention(config, 0).eval()
        with torch.no_grad():
            theirs.rel_logits_proj.proj.normal_()
            theirs(x, None)
    ours = Inkling(24, 3, rank=4, extent=6, sharpen_after=3, slope=0.4)
    with torch.no_grad():
        ours.mixture_GD.copy_(theirs.r_proj.weight)
        ours.basis_GR.copy_(theirs.rel_logits_proj.proj)
    (plain, _), (sharp, bias) = heard
    own = ours.locate(x, pos, None)
    torch.testing.assert_close(ours.rotate(plain, plain, own, own)[0], sharp)
    assert (sharp - plain).abs().max() > 0.1
    mine = ours.bias(AttentionInputs(plain, plain, own, own)).tril()
    torch.testing.assert_close(mine, bias.expand(1, 3, -1, -1).tril(), atol=1e-5, rtol=1e-5)
