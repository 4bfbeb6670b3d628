"""The KV cache under the two names that transformers has had for it: its own models decide which one is right."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from clockhands.errors import UsageError
from clockhands.model.huggingface_cache import CACHE_NAME, get_cache
from tests.model.tiny import model, words

BOTH = ("cache", "past_key_values")


def make_cache(architecture: str) -> DynamicCache | EncoderDecoderCache:
    return DynamicCache() if architecture == "decoder" else EncoderDecoderCache(DynamicCache(), DynamicCache())


def make_inputs(architecture: str, text: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"input_ids": text} if architecture == "decoder" else {"input_ids": words(1, 5), "decoder_input_ids": text}


@torch.no_grad()
def test_the_name_is_that_of_the_library_s_own_models() -> None:
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 8)
    llama = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=1, num_attention_heads=1))
    output = llama(torch.tensor([[1, 2, 3]]), use_cache=True)
    assert CACHE_NAME in output
    assert get_cache(output).get_seq_length() == 3
    assert get_cache(llama(torch.tensor([[1, 2, 3]]), use_cache=False)) is None


@torch.no_grad()
@pytest.mark.parametrize("architecture", ["decoder", "encoder-decoder"])
def test_a_cache_is_used_under_either_name_and_refused_under_both(architecture: str) -> None:
    made, text = model(architecture), words(1, 6)
    whole = made(**make_inputs(architecture, text), use_cache=False).logits
    for name in BOTH:
        cache = make_cache(architecture)
        output = made(**make_inputs(architecture, text[:, :4]), **{name: cache})
        assert get_cache(output) is cache
        rest = made(**make_inputs(architecture, text[:, 4:]), **{name: cache}).logits
        torch.testing.assert_close(torch.cat([output.logits, rest], 1), whole)
        assert cache.get_seq_length() == 6
    with pytest.raises(UsageError, match="two names of the same KV cache; pass one of them"):
        made(**make_inputs(architecture, text), **{name: make_cache(architecture) for name in BOTH})


@torch.no_grad()
@pytest.mark.parametrize("architecture", ["decoder", "encoder-decoder"])
def test_generate_goes_on_from_a_cache_that_it_returned(architecture: str) -> None:
    made, text = model(architecture), words(1, 5)
    options = {"max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True, "eos_token_id": None}
    first = made.generate(text, **options)
    kept = get_cache(first)
    assert kept.get_seq_length() > 0
    if architecture == "encoder-decoder":  # whose own text would start anew
        return
    turn = torch.cat([first.sequences, words(1, 3)], 1)
    resumed = made.generate(turn, **options, **{CACHE_NAME: kept}).sequences
    assert resumed.tolist() == made.generate(turn, **options, use_cache=False).sequences.tolist()
