"""The bounds of YaRN and the share of p-RoPE, as transformers has them, where a wrong one shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from clockhands.schemes import RoPE
from clockhands.schemes.rotary.spectra import Dynamic, LongRoPE, Proportional, Spectrum, YaRN

HEAD_DIM, BASE = 16, 100.0


def theirs(spectrum: Spectrum) -> torch.Tensor:
    """The frequencies that transformers makes from our ``rope_parameters``."""
    parameters: dict[str, Any] = spectrum.to_hf_config(BASE, HEAD_DIM)
    config = LlamaConfig(hidden_size=HEAD_DIM, num_attention_heads=1, head_dim=HEAD_DIM, rope_parameters=parameters)
    omega, _ = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, None)
    return omega.double()


@pytest.mark.parametrize(
    ("length", "beta_fast", "bounds"),
    [
        # L > 2π·base: even the slowest pair comes round more than once, so the upper bound lies beyond the last pair
        # (D/2 - 1 = 7), and only its own limit, D - 1 = 15, may cut it.
        (8_192, 200.0, (3, 13)),
        (1_000_000, 4_000.0, (6, 15)),
        # L < 2π·base: no limit is reached.
        (300, 8.0, (3, 7)),
    ],
)
def test_yarn_limits_its_upper_bound_by_the_width_and_not_by_the_number_of_pairs(
    length: int, beta_fast: float, bounds: tuple[int, int]
) -> None:
    spectrum = YaRN(factor=8.0, original_length=length, beta_fast=beta_fast)
    assert spectrum.bounds(HEAD_DIM, BASE) == bounds
    torch.testing.assert_close(spectrum.frequencies(HEAD_DIM, BASE), theirs(spectrum), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(("share", "kept"), [(0.0, 0), (0.25, 2), (0.3, 2), (0.4, 3), (0.99, 7), (1.0, 8)])
def test_a_share_that_is_no_whole_number_of_pairs_is_rounded_down(share: float, kept: int) -> None:
    omega = Proportional(share=share).frequencies(HEAD_DIM, BASE)
    assert (omega > 0).tolist() == [pair < kept for pair in range(HEAD_DIM // 2)]
    if kept:
        torch.testing.assert_close(omega, theirs(Proportional(share=share)), atol=1e-7, rtol=1e-6)


def test_factors_that_are_too_few_or_not_above_zero_are_named_with_how_many_pairs_there_are() -> None:
    short, long = (1.0,) * 3, (*(1.0,) * 7, 0.0)
    assert LongRoPE(factor=4.0, original_length=64, short_factor=short, long_factor=long).faults(HEAD_DIM) == [
        "rope.short_factor has 3 numbers, but 8 pairs rotate",
        "rope.long_factor holds 0.0, but all must be above 0",
    ]


@pytest.mark.parametrize(("mscale", "mscale_all_dim"), [(1.0, 1.0), (0.707, 0.707), (1.0, 0.5)])
def test_deepseeks_factors_are_those_of_transformers(mscale: float, mscale_all_dim: float) -> None:
    """Cosines and sines take their quotient; 1/√d takes the square of that of all dimensions, for every channel."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

    options: dict[str, Any] = {"spectrum": "yarn", "factor": 40.0, "original_length": 4096, "base": BASE}
    scheme = RoPE.from_options(HEAD_DIM, **options, mscale=mscale, mscale_all_dim=mscale_all_dim)
    known = scheme.to_hf_config()
    assert known is not None
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "qk_rope_head_dim": HEAD_DIM, "qk_nope_head_dim": 8}
    config = DeepseekV3Config(**sizes, **known)
    omega, factor = ROPE_INIT_FUNCTIONS["yarn"](config, None)
    torch.testing.assert_close(scheme.frequencies(), omega.double(), atol=1e-7, rtol=1e-6)
    assert scheme.spectrum.amplitude() == pytest.approx(factor)
    assert scheme.scale(HEAD_DIM + 8) == pytest.approx(DeepseekV3Attention(config, 0).scaling)


def test_heads_at_their_own_positions_turn_by_the_frequencies_of_their_row() -> None:
    """Positions [B, H, S] of tokens that place themselves, frequencies [B, 1, F] of a rule that reads the length."""
    own_BHS, omega_B1F = 20 * torch.rand(2, 3, 5), torch.rand(2, 1, 4)
    angle_BHSF = RoPE(8, spectrum=Dynamic(factor=2.0, original_length=4))._compute_angles_by_row(own_BHS, omega_B1F)
    expected = [[positions_S[:, None] * omega_B1F[row] for positions_S in own_BHS[row]] for row in range(2)]
    torch.testing.assert_close(angle_BHSF, torch.stack([torch.stack(heads) for heads in expected]))
