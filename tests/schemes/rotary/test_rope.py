"""Rotary positions: the paper's lines, flat options, learned frequencies, and rotated values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clockhands import positions
from clockhands.attention import RecordedAttention, attend, attend_reference, record
from clockhands.errors import ConfigError, PositionError, UsageError
from clockhands.schemes import AttentionInputs, Composition, Declares, Dynamic, Plain, RoPE, Scheme, Sinks, Window, YaRN
from clockhands.schemes.rotary.rope import rotate_as_written


def compute(dtype: torch.dtype, start: int, *, same: bool, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The output of attention, and the gradient of the learned frequencies, in float64."""
    generator = torch.Generator().manual_seed(3)
    rope = RoPE.from_options(head_dim=32, learned=True, **options)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("length", [5, 700])
def test_it_rotates_as_the_paper_writes(dtype: torch.dtype, length: int) -> None:
    x, pos = torch.randn(2, 3, length, 8).to(dtype), torch.arange(length).repeat(2, 1) + torch.tensor([[0], [9000]])
    for got in RoPE(8, base=500.0, layout="interleaved").rotate(x, x, pos, pos):
        error = 4 * torch.finfo(dtype).eps * float(x.abs().max()) + 1e-7
        torch.testing.assert_close(got, rotate_as_written(x.double(), pos, 500.0).to(dtype), atol=error, rtol=0)


def test_flat_options_are_those_of_the_spectrum_beside_its_name() -> None:
    flat = RoPE.from_options(16, base=500.0, spectrum="yarn", factor=4.0, original_length=64, beta_fast=None)
    assert flat.spectrum == YaRN(4.0, 64) and flat.base == 500.0
    assert RoPE.from_options(16).spectrum == RoPE(16).spectrum == Plain()
    with pytest.raises(ConfigError, match="unknown option of rope 'layouts'; did you mean 'layout'"):
        RoPE.from_options(16, layouts="half")


HEADS, WIDTH, LENGTH, LEFT = 4, 16, 12, 3


class Adding(Scheme):
    """Somebody's scheme that adds one vector to every output."""

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True)

    def values(self, out_BHSK: Tensor, weights_BHST: Tensor, at: AttentionInputs) -> Tensor:
        return out_BHSK + 1


def heads(count: int = HEADS, length: int = LENGTH, width: int = WIDTH) -> Tensor:
    return torch.randn(2, count, length, width)


def make_attention_of_deepseek_v4(fraction: float) -> Any:
    """A layer of the kind ``sliding_attention`` with random weights and sinks."""
    module = "transformers.models.deepseek_v4"
    pytest.importorskip(module, reason="this version of transformers has no DeepSeek-V4")
    from transformers import DeepseekV4Config
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as theirs

    config = DeepseekV4Config(
        hidden_size=24, head_dim=WIDTH, num_attention_heads=HEADS, num_hidden_layers=1, q_lora_rank=20, o_lora_rank=6,
        o_groups=2, sliding_window=LEFT + 1, layer_types=["sliding_attention"], partial_rotary_factor=fraction,
        attn_implementation="eager", num_key_value_heads=1,
    )  # fmt: skip
    layer = theirs.DeepseekV4Attention(config, 0).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return theirs, config, layer


@torch.no_grad()
@pytest.mark.parametrize("fraction", [0.5, 0.125])
def test_a_layer_of_deepseek_v4_is_rope_with_rotated_values_a_window_and_sinks(fraction: float) -> None:
    theirs, config, layer = make_attention_of_deepseek_v4(fraction)
    x_BSD, pos_BS = torch.randn(2, LENGTH, 24), positions.count_up(2, LENGTH) + 40
    angles = theirs.DeepseekV4RotaryEmbedding(config)(x_BSD, pos_BS, "main")
    distance_SS = pos_BS[0, :, None] - pos_BS[0, None]
    mask = torch.where((distance_SS >= 0) & (distance_SS <= LEFT), 0.0, -torch.inf)[None, None]
    wanted = layer(x_BSD, {"main": angles}, pos_BS, mask)[0]

    q = layer.q_b_norm(layer.q_b_proj(layer.q_a_norm(layer.q_a_proj(x_BSD))).view(2, LENGTH, HEADS, WIDTH))
    kv = layer.kv_norm(layer.kv_proj(x_BSD))[:, None]
    sinks = Sinks(num_heads=HEADS)
    sinks.sink_H.copy_(layer.sinks)
    rope = RoPE(WIDTH, values=True, layout="interleaved", fraction=fraction, base=config.rope_theta)
    scheme = Composition(schemes=[rope, Window(num_heads=HEADS, left=LEFT), sinks])
    turned = rope.channels  # DeepSeek's are the last channels of a head, ours the first
    q, kv = (heads.roll(turned, -1) for heads in (q.transpose(1, 2), kv))
    out = attend(scheme, q, kv, kv, pos_BS, pos_BS, causal=True).roll(-turned, -1)
    joined = layer.o_a_proj(out.transpose(1, 2).reshape(2, LENGTH, config.o_groups, -1)).flatten(2)
    torch.testing.assert_close(layer.o_b_proj(joined), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("moved", [True, False])
def test_cached_keys_and_values_that_move_on_together_stay_what_they_are(moved: bool) -> None:
    """Where a cache drops its first tokens and counts anew, keys and values have to be rotated by the same angle."""
    scheme, q, k, v = RoPE(WIDTH, values=True), heads(), heads(), heads()
    pos_BS = positions.count_up(2, LENGTH)
    q_rotated, k_rotated = scheme.rotate(q, k, pos_BS, pos_BS)
    v_rotated = scheme.rotate_values(v, pos_BS, pos_BS)
    before = attend(scheme, q_rotated, k_rotated, v_rotated, pos_BS, pos_BS, rotated=True)
    on_BS, later_BS = torch.full_like(pos_BS, 7), pos_BS + 7
    k_moved = scheme.rotate(k_rotated, k_rotated, on_BS, on_BS)[0]
    v_moved = scheme.rotate_values(v_rotated, on_BS, on_BS) if moved else v_rotated
    q_later = scheme.rotate(q, q, later_BS, later_BS)[0]
    after = attend(scheme, q_later, k_moved, v_moved, later_BS, later_BS, rotated=True)
    assert torch.allclose(after, before, atol=1e-5) is moved


def test_yarns_factor_sharpens_logits_and_leaves_the_length_of_values() -> None:
    scheme = RoPE(WIDTH, values=True, spectrum=YaRN(factor=8.0, original_length=64))
    assert scheme.spectrum.amplitude() > 1.1
    v, pos_BS = heads(length=1), torch.full((2, 1), 9)
    torch.testing.assert_close(attend(scheme, heads(length=1), heads(length=1), v, pos_BS, pos_BS), v)


def test_the_length_of_a_row_is_that_of_queries_and_keys_together() -> None:
    scheme = RoPE(WIDTH, values=True, spectrum=Dynamic(factor=2.0, original_length=4))
    q, k, v, pos_BS = heads(), heads(), heads(), positions.count_up(2, LENGTH)
    whole = attend(scheme, q, k, v, pos_BS, pos_BS)
    for part in (slice(0, 5), slice(7, LENGTH)):
        torch.testing.assert_close(attend(scheme, q[:, :, part], k, v, pos_BS[:, part], pos_BS), whole[:, :, part])


def test_grouped_heads_share_rotated_values() -> None:
    scheme, q, k, v = RoPE(WIDTH, values=True), heads(), heads(2), heads(2)
    pos_BS = positions.count_up(2, LENGTH)
    repeated = [x.repeat_interleave(2, dim=1) for x in (k, v)]
    grouped = attend(scheme, q, k, v, pos_BS, pos_BS, causal=True)
    torch.testing.assert_close(grouped, attend(scheme, q, *repeated, pos_BS, pos_BS, causal=True))


def test_who_records_receives_the_same_output_and_the_same_weights_as_without_rotated_values() -> None:
    q, k, v, pos_BS = heads(), heads(), heads(), positions.count_up(2, LENGTH)
    heard: list[RecordedAttention] = []
    with record(heard.append):
        out = attend(RoPE(WIDTH, values=True), q, k, v, pos_BS, pos_BS, causal=True)
    torch.testing.assert_close(heard[0].out_BHSK, out)
    torch.testing.assert_close(attend(RoPE(WIDTH, values=True), q, k, v, pos_BS, pos_BS, causal=True), out)
    plain = attend_reference(RoPE(WIDTH), q, k, v, pos_BS, pos_BS, causal=True)
    assert torch.equal(heard[0].weights_BHST, plain.weights_BHST)
    assert not torch.allclose(plain.out_BHSK, out, atol=0.1)


@pytest.mark.parametrize("scheme", [RoPE(WIDTH), Composition(schemes=[RoPE(WIDTH), Window(num_heads=HEADS)])])
def test_without_the_option_values_are_the_very_tensor_that_they_were(scheme: Scheme) -> None:
    v, pos_BS = heads(), positions.count_up(2, LENGTH)
    assert not scheme.active_hooks() & {"rotate_values", "rotate_back"}
    assert scheme.rotate_values(v, pos_BS, pos_BS) is v
    assert scheme.rotate_back(v, pos_BS, pos_BS) is v


def test_no_configuration_of_transformers_has_the_option() -> None:
    assert RoPE(WIDTH).to_hf_config() is not None
    assert RoPE(WIDTH, values=True).to_hf_config() is None


def test_what_cannot_be_rotated_is_refused() -> None:
    scheme, q, pos_BS = RoPE(WIDTH, values=True), heads(), positions.count_up(2, LENGTH)
    with pytest.raises(UsageError, match="values have 8 channels and 16 are to be rotated; lower fraction, or leave"):
        attend(scheme, q, q, heads(width=8), pos_BS, pos_BS)
    narrow = RoPE(WIDTH, values=True, fraction=0.5)
    assert attend(narrow, q, q, heads(width=8), pos_BS, pos_BS).shape == (2, HEADS, LENGTH, 8)
    with pytest.raises(PositionError, match="rope"):
        scheme.rotate_values(q, pos_BS, torch.zeros(2, LENGTH, 2))
    for parts in ([scheme, Adding()], [Adding(), scheme]):
        with pytest.raises(
            ConfigError, match="Adding adds vectors of its own to the output, and RoPE with values = true"
        ):
            Composition(schemes=parts)
    assert Composition(schemes=[RoPE(WIDTH), Adding()]).active_hooks() == {"rotate", "values"}
