"""Forgetting attention against x-transformers, and its fault with a cache."""

from __future__ import annotations

import pytest
import torch
from x_transformers import Decoder, TransformerWrapper
from x_transformers.x_transformers import DataDependentAlibi

from clockhands import positions
from clockhands.attention import attend
from clockhands.schemes import AttentionInputs, CARoPE, Forgetting
from clockhands.schemes.content.running_sum import read_sums
from tests.schemes.peers import agree, copied, flash_linear_attention, leaf

HEADS, LENGTH, WIDTH = 4, 9, 8
D = HEADS * WIDTH


def test_bias_and_its_gradients_are_those_of_x_transformers() -> None:
    ours, theirs = Forgetting(D, HEADS), DataDependentAlibi(D, HEADS)
    gate = theirs.to_forget_gates[0]
    with torch.no_grad():
        gate.weight.copy_(ours.gate_HD.normal_())
    x = leaf(2, LENGTH, D)
    y, q, pos = copied(x), torch.zeros(2, HEADS, LENGTH, WIDTH), positions.count_up(2, LENGTH)

    def mine() -> torch.Tensor:
        own = ours.locate(x, pos, None)
        return ours.bias(AttentionInputs(q, q, own, own))

    pairs = [(x, y), (ours.gate_HD, gate.weight), (ours.start_H, gate.bias)]
    agree(mine, lambda: theirs(y), pairs, atol=2e-5)


def test_attention_and_its_gradients_are_those_of_flash_linear_attention() -> None:
    naive = flash_linear_attention("forgetting_attn").naive_forgetting_attn
    ours, pos = Forgetting(D, HEADS, start=0.0), positions.count_up(2, LENGTH)
    q, k, v = (leaf(2, HEADS, LENGTH, WIDTH, seed=seed) for seed in range(3))
    x = leaf(2, LENGTH, D, seed=3)
    q2, k2, v2, x2 = (copied(t) for t in (q, k, v, x))

    def mine() -> torch.Tensor:
        own = ours.locate(x, pos, None)
        return attend(ours, q, k, v, own, own, causal=True)

    def theirs() -> torch.Tensor:
        gates = torch.nn.functional.logsigmoid(torch.nn.functional.linear(x2, ours.gate_HD, ours.start_H))
        return naive(*(t.transpose(1, 2) for t in (q2, k2, v2)), gates).transpose(1, 2)

    agree(mine, theirs, [(q, q2), (k, k2), (v, v2), (x, x2)], atol=1e-5)


def test_cable_is_forgetting_with_the_opposite_sign_of_its_weights() -> None:
    cable, forget = Forgetting(D, HEADS, gate="cable"), Forgetting(D, HEADS, start=0.0)
    with torch.no_grad():
        forget.gate_HD.copy_(-cable.gate_HD)
    x, pos = torch.randn(1, LENGTH, D), positions.count_up(1, LENGTH)
    torch.testing.assert_close(cable.locate(x, pos, None), forget.locate(x, pos, None))


def test_trap_30_with_a_cache_ours_equals_the_full_pass_and_x_transformers_does_not() -> None:
    scheme = Forgetting(D, HEADS, start=1.0)
    x, pos = torch.randn(1, LENGTH, D), positions.count_up(1, LENGTH)
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, WIDTH).unbind(0)
    own = scheme.locate(x, pos, None)
    full = attend(scheme, q, k, v, own, own, causal=True)
    past = scheme.locate(x[:, :-1], pos[:, :-1], None)
    last = scheme.locate(x[:, -1:], pos[:, -1:], past)
    step = attend(scheme, q[:, :, -1:], k, v, last, torch.cat([past, last], 2), causal=True)
    torch.testing.assert_close(step, full[:, :, -1:], atol=1e-5, rtol=1e-5)

    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=2, heads=4, attn_data_dependent_alibi=True, attn_dim_head=8)
    model = TransformerWrapper(num_tokens=11, max_seq_len=32, attn_layers=layers, use_abs_pos_emb=False).eval()
    ids = torch.randint(0, 11, (1, LENGTH))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, DataDependentAlibi):
                module.to_forget_gates[0].bias.fill_(0.0)
        whole = model(ids)
        _, kept = model(ids[:, :-1], return_intermediates=True)
        cached = model(ids, cache=kept)
    assert (cached[:, -1] - whole[:, -1]).abs().max() > 1e-3, "x-transformers drops the gates of cached tokens"


@pytest.mark.parametrize("start", [-2.0, 5.0])
def test_start_says_how_much_is_forgotten_at_first(start: float) -> None:
    scheme, x = Forgetting(D, HEADS, start=start), torch.zeros(1, 3, D)
    own = scheme.locate(x, positions.count_up(1, 3), None)
    expected = torch.nn.functional.logsigmoid(torch.tensor(start))
    sums = read_sums(own).float()
    torch.testing.assert_close(sums[0, :, 1, 0] - sums[0, :, 0, 0], expected.expand(HEADS))


@pytest.mark.parametrize("kind", [Forgetting, CARoPE])
def test_sums_stay_exact_where_a_text_is_long(kind: type[Forgetting] | type[CARoPE]) -> None:
    """Sums of 32,768 steps in float32 are off by 2e-3; these, also from a cache, are right to their last digit."""
    length, kept = 32_768, 20_000
    sizes = (8, 2) if kind is Forgetting else (8, 2, 4)
    scheme = kind(*sizes)
    x, pos = torch.randn(1, length, 8), positions.count_up(1, length)
    with torch.no_grad():
        whole = scheme.locate(x, pos, None)
        steps = read_sums(torch.cat([scheme.locate(x[:, t : t + 1], pos[:, :1], None) for t in range(64)], dim=2))
        first = scheme.locate(x[:, :kept], pos[:, :kept], None)
        rest = scheme.locate(x[:, kept:], pos[:, kept:], first)
    assert whole.dtype == torch.float32, "what the cache keeps"
    torch.testing.assert_close(read_sums(whole)[:, :, :64], steps.cumsum(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(read_sums(rest), read_sums(whole)[:, :, kept:], atol=1e-8, rtol=0)
    far = read_sums(whole).diff(dim=2)[:, :, -64:]
    last = torch.cat(
        [read_sums(scheme.locate(x[:, t : t + 1], pos[:, :1], None)) for t in range(length - 64, length)], 2
    )
    torch.testing.assert_close(far, last.detach(), atol=1e-6, rtol=0)
