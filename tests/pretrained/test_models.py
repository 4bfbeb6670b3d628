"""Models are built without running code that nobody trusts, and counted without their weights."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModel, LlamaConfig

from clockhands.pretrained import build_model, count_numbers

LLAMA = LlamaConfig(
    vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, head_dim=4
)


def test_numbers_are_counted_by_hand() -> None:
    """Embedding; by layer four projections, three matrices of the network, two norms; the last norm; 2 frequencies."""
    layer = 4 * 8 * 8 + 3 * 8 * 12 + 2 * 8
    (*buffers,) = build_model(AutoModel, LLAMA).buffers()
    assert count_numbers(AutoModel, LLAMA) == 11 * 8 + 2 * layer + 8 + sum(buffer.numel() for buffer in buffers)


def test_a_count_makes_no_weights() -> None:
    """A model of 10¹³ numbers is counted where nothing could hold it."""
    huge = LlamaConfig(vocab_size=10**9, hidden_size=10**4, num_hidden_layers=1, num_attention_heads=2)
    count = count_numbers(AutoModel, huge)
    assert count is not None and count > 10**13


def test_what_cannot_be_built_is_not_counted() -> None:
    broken = LlamaConfig(**{**LLAMA.to_dict(), "hidden_act": "no such activation"})
    assert count_numbers(AutoModel, broken) is None


def test_fresh_weights_follow_the_seed() -> None:
    models = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        models.append(build_model(AutoModel, AutoConfig.for_model(**LLAMA.to_dict())))
    first, same, other = (model.embed_tokens.weight for model in models)
    assert torch.equal(first, same) and not torch.equal(first, other)


def test_an_unknown_class_raises_what_transformers_raises() -> None:
    with pytest.raises(ValueError, match=r"[Uu]nrecognized"):
        build_model(AutoModel, object())
