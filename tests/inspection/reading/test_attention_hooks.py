"""Masks are told from logits, whatever number a family writes for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.attention import install
from clockhands.inspection import capture, split_logits
from clockhands.inspection.reading.attention_hooks import ComputedAttention, _find_mask, listen
from clockhands.inspection.reading.logit_split import compute_positional_share, sum_groups
from clockhands.inspection.reading.reading import _find_influence
from clockhands.models.subject import Subject
from clockhands.schemes import Alibi

from ..tiny import draw_ids

VOCAB = 97
SIZES = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}


@pytest.mark.parametrize("mask", [-torch.inf, -3.4e38, -65504.0, -1e5, -1e4])
def test_every_mask_in_use_is_taken_for_one(mask: float) -> None:
    logits = torch.randn(2, 3, 8, 8) * 50
    seen = torch.ones(8, 8, dtype=torch.bool).tril()
    assert torch.equal(_find_mask(logits.masked_fill(~seen, mask)), seen.expand_as(logits))
    assert torch.equal(_find_mask((logits + torch.where(seen, 0.0, mask)).clamp_min(-3.4e38)), seen.expand_as(logits))


def test_large_logits_are_no_masks() -> None:
    """ALiBi's steepest slope over 4,096 tokens, and a head with logits of ± 1,000."""
    assert bool(_find_mask(-torch.arange(4096.0)[None]).all())
    assert bool(_find_mask(torch.tensor([[-1000.0, 1000.0]])).all())


@torch.no_grad()
def _without_positions(name: str) -> Any:
    torch.manual_seed(0)
    if name == "openai-gpt":
        model: Any = hf.OpenAIGPTModel(hf.OpenAIGPTConfig(**SIZES))
        model.positions_embed.weight.zero_()
        model.tokens_embed.weight.normal_()
    else:
        model = hf.CTRLModel(hf.CTRLConfig(**SIZES, dff=64))
        model.pos_encoding = torch.zeros_like(model.pos_encoding)
        model.w.weight.normal_()
    for layer in model.h:
        for label, weight in layer.named_parameters():
            if weight.ndim == 2:
                weight.normal_(0, 1.5 * 32**-0.5)
            elif label.endswith("bias"):
                weight.zero_()
    return model


@pytest.mark.parametrize("name", ["openai-gpt", "ctrl"])
def test_position_decides_nothing_where_there_is_none(name: str) -> None:
    """Their masks are -10,000 or lie in an argument beside the input; neither is a term of position."""
    subject = Subject.of(_without_positions(name))
    assert _find_influence(subject.forward, draw_ids(48, 20)).causal
    recorded = capture(subject.model, subject.forward, draw_ids(48, 20))
    found = split_logits(recorded.layers[0], recorded.ordinary_T)
    assert found.error < 1e-5
    assert abs(compute_positional_share(found.compute_layer_shares())) < 0.05
    assert sum_groups(found.compute_layer_shares())["content–content"] > 0.9


@torch.no_grad()
def test_a_scheme_that_is_installed_is_read_with_what_it_adds() -> None:
    """What ALiBi adds in a Llama is minus the slope times the distance, and nothing is added in a layer without it."""
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=32,
    )  # fmt: skip
    model, heard = hf.LlamaModel(config).eval(), list[ComputedAttention]()
    with install(model, Alibi(4), layers=[1]), listen(model, heard.append):
        model(draw_ids(48, 20)[:2])
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])[:, None, None]
    distance = torch.arange(20)[:, None] - torch.arange(20)
    added = [computed.bias_BHST for computed in heard]
    assert [computed.module for computed in heard] == [layer.self_attn for layer in model.layers]
    assert added[0] is not None and not added[0].any()
    torch.testing.assert_close(added[1], (-slopes * distance.clamp(min=0)).expand(2, -1, -1, -1))
